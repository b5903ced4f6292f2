// Package dayjob enqueues jobs for dayjob workers. See docs/wire.md of dayjob for what is written where.
package dayjob

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

const (
	mostJobs  = 500
	mostBytes = 1 << 20
	// The furthest moment that a job can have, in seconds.
	mostSeconds = 1_000_000_000_000
)

// Args are the arguments of a job, by name: anything that encoding/json can write.
type Args map[string]any

// Job is a job that was stored.
type Job struct {
	Name string
	// ID is 32 random hex digits, or the id given to Using.
	ID        string
	Args      Args
	Source    any
	UniqueKey string
	// RunAt is the zero time unless the job waits for its time.
	RunAt time.Time
}

// Options are what only the one who enqueues knows.
type Options struct {
	// ID has 1 to 200 characters. The same id again within a day stores nothing, so that a repeat is safe.
	ID string
	// Source says who the job is for, a tenant or a customer: a string or an integer.
	Source any
	// UniqueKey makes two jobs alike in place of their arguments: a string, or Args. It makes the job unique.
	UniqueKey any
	// UniqueFor keeps others out for so long, whatever becomes of the job. It makes the job unique.
	UniqueFor time.Duration
	// Expires discards a job that has not started by then, counted on the Redis clock from the moment it is stored.
	Expires time.Duration
}

var (
	// ErrDuplicate says that a job like it already waits. Nothing was stored.
	ErrDuplicate = errors.New("dayjob: a job like it already waits")
	// ErrInvalid is a name, an argument or an option that no job can have. Nothing was sent.
	ErrInvalid = errors.New("dayjob: invalid")
)

// Unknown says that Redis gave no answer, or none that settles it: the jobs may be stored, in part or whole.
type Unknown struct {
	Err   error
	again func(context.Context) ([]*Job, error)
}

func (u *Unknown) Error() string {
	return fmt.Sprintf("dayjob: %v; it may be stored, in part or whole (Repeat is safe)", u.Err)
}

func (u *Unknown) Unwrap() error { return u.Err }

// Repeat sends the same request again, and answers for the whole call. It never stores a job twice; safe for an hour.
func (u *Unknown) Repeat(ctx context.Context) ([]*Job, error) { return u.again(ctx) }

// Enqueuer puts jobs in. It may be shared between goroutines.
type Enqueuer struct {
	redis   redis.UniversalClient
	prefix  string
	now     func() time.Time
	options Options
	slots   *slots
}

// New returns an enqueuer over the caller's connection. "shop" and "shop:" are the same namespace.
func New(client redis.UniversalClient, namespace string) *Enqueuer {
	if namespace != "" && !strings.HasSuffix(namespace, ":") {
		namespace += ":"
	}
	return &Enqueuer{redis: client, prefix: namespace, now: time.Now, slots: &slots{}}
}

// Using returns an enqueuer like this one whose jobs get these options, over those it had.
func (e *Enqueuer) Using(options Options) *Enqueuer {
	twin := *e
	if options.ID != "" {
		twin.options.ID = options.ID
	}
	if options.Source != nil {
		twin.options.Source = options.Source
	}
	if options.UniqueKey != nil {
		twin.options.UniqueKey = options.UniqueKey
	}
	if options.UniqueFor != 0 {
		twin.options.UniqueFor = options.UniqueFor
	}
	if options.Expires != 0 {
		twin.options.Expires = options.Expires
	}
	return &twin
}

// Sourced returns an enqueuer whose jobs are for source.
func (e *Enqueuer) Sourced(source any) *Enqueuer { return e.Using(Options{Source: source}) }

// Enqueue puts a job in its queue.
func (e *Enqueuer) Enqueue(ctx context.Context, name string, args Args) (*Job, error) {
	return e.one(ctx, name, args, when{mode: "now"}, false)
}

// EnqueueIn puts a job in, to run after delay.
func (e *Enqueuer) EnqueueIn(ctx context.Context, name string, delay time.Duration, args Args) (*Job, error) {
	return e.one(ctx, name, args, when{"in", delay.Round(time.Millisecond).Milliseconds()}, false)
}

// EnqueueAt puts a job in, to run at a moment.
func (e *Enqueuer) EnqueueAt(ctx context.Context, name string, at time.Time, args Args) (*Job, error) {
	return e.oneAt(ctx, name, args, at, false)
}

// EnqueueUnique puts a job in unless one like it waits; ErrDuplicate when one does.
func (e *Enqueuer) EnqueueUnique(ctx context.Context, name string, args Args) (*Job, error) {
	return e.one(ctx, name, args, when{mode: "now"}, true)
}

// EnqueueUniqueIn is EnqueueUnique, to run after delay.
func (e *Enqueuer) EnqueueUniqueIn(ctx context.Context, name string, delay time.Duration, args Args) (*Job, error) {
	return e.one(ctx, name, args, when{"in", delay.Round(time.Millisecond).Milliseconds()}, true)
}

// EnqueueUniqueAt is EnqueueUnique, to run at a moment.
func (e *Enqueuer) EnqueueUniqueAt(ctx context.Context, name string, at time.Time, args Args) (*Job, error) {
	return e.oneAt(ctx, name, args, at, true)
}

// EnqueueMany puts many jobs of one name in, a few hundred to a round trip. All are checked before any is sent.
// Duplicates of unique jobs are left out of the answer.
func (e *Enqueuer) EnqueueMany(ctx context.Context, name string, list []Args) ([]*Job, error) {
	if e.options.ID != "" {
		return nil, invalid("one id cannot serve many jobs: drop Options.ID")
	}
	drafts := make([]draft, 0, len(list))
	for _, args := range list {
		one, err := e.draft(name, args, false)
		if err != nil {
			return nil, err
		}
		drafts = append(drafts, one)
	}
	return e.deliver(ctx, name, batches(drafts), when{mode: "now"})
}

// when is a mode, "now", "in" or "at", and its milliseconds.
type when struct {
	mode   string
	amount int64
}

type draft struct {
	job     *Job
	payload string
}

type request struct {
	drafts []draft
	number int
}

func (e *Enqueuer) one(ctx context.Context, name string, args Args, at when, unique bool) (*Job, error) {
	if at.mode == "in" && at.amount < 0 {
		return nil, invalid("%s: a delay of %d ms: it must not be negative", name, at.amount)
	}
	one, err := e.draft(name, args, unique)
	if err != nil {
		return nil, err
	}
	jobs, err := e.deliver(ctx, name, [][]draft{{one}}, at)
	if err != nil {
		return nil, err
	}
	if len(jobs) == 0 {
		return nil, ErrDuplicate
	}
	return jobs[0], nil
}

func (e *Enqueuer) oneAt(ctx context.Context, name string, args Args, at time.Time, unique bool) (*Job, error) {
	// In seconds: milliseconds overflow for moments that a time.Time can have.
	if second := at.Unix(); second <= -mostSeconds || second >= mostSeconds-1 {
		return nil, invalid("%s: the time to run is out of range (%d seconds since the epoch)", name, second)
	}
	return e.one(ctx, name, args, when{"at", at.Round(time.Millisecond).UnixMilli()}, unique)
}

func (e *Enqueuer) draft(name string, args Args, unique bool) (draft, error) {
	if err := e.check(name); err != nil {
		return draft{}, err
	}
	if args == nil {
		args = Args{}
	}
	encoded, err := Canonical(args)
	if err != nil {
		return draft{}, err
	}
	job := &Job{Name: name, ID: e.options.ID, Args: args, Source: e.options.Source}
	if job.ID == "" {
		job.ID = newID()
	}
	if unique || e.options.UniqueKey != nil || e.options.UniqueFor != 0 {
		rest, err := e.uniqueRest(encoded)
		if err != nil {
			return draft{}, err
		}
		job.UniqueKey = e.prefix + "unique:" + name + ":" + rest
	}
	payload, err := e.write(job, encoded)
	if err == nil && len(payload) > mostBytes {
		err = invalid("%s: the job has %d bytes, the limit is %d", name, len(payload), mostBytes)
	}
	return draft{job, payload}, err
}

func (e *Enqueuer) write(job *Job, args string) (string, error) {
	now := e.now().UnixMilli()
	fields := []struct {
		key   string
		value any
		wrote bool
	}{
		{"name", job.Name, true},
		{"id", job.ID, true},
		{"t", now / 1000, true},
		{"args", json.RawMessage(args), true},
		{"unique", true, job.UniqueKey != "" && e.options.UniqueFor == 0},
		{"unique_key", job.UniqueKey, job.UniqueKey != "" && e.options.UniqueFor == 0},
		{"source", job.Source, job.Source != nil},
		// The script replaces this number, so that the job expires on the Redis clock. It looks for it just before "at".
		{"expires", now + e.options.Expires.Milliseconds(), e.options.Expires != 0},
		{"at", now, true},
	}
	var parts []string
	for _, field := range fields {
		if !field.wrote {
			continue
		}
		value, err := Canonical(field.value)
		if err != nil {
			return "", err
		}
		parts = append(parts, `"`+field.key+`":`+value)
	}
	return "{" + strings.Join(parts, ",") + "}", nil
}

func (e *Enqueuer) uniqueRest(args string) (string, error) {
	switch key := e.options.UniqueKey.(type) {
	case nil:
		return args + "\n", nil
	case string:
		return key, nil
	default:
		encoded, err := Canonical(key)
		return encoded + "\n", err
	}
}

// deliver sends the batches in order. A slot whose request failed is not given back: its number belongs to the repeat.
func (e *Enqueuer) deliver(ctx context.Context, name string, batches [][]draft, at when) ([]*Job, error) {
	slot := e.slots.take()
	requests := make([]request, 0, len(batches))
	for _, drafts := range batches {
		slot.number++
		requests = append(requests, request{drafts, slot.number})
	}
	jobs := []*Job{}
	var send func(context.Context, bool) ([]*Job, error)
	send = func(ctx context.Context, first bool) ([]*Job, error) {
		for sent := 0; len(requests) > 0; sent++ {
			stored, err := e.put(ctx, name, requests[0], at, slot.id)
			if err != nil {
				if first && sent == 0 && refusals.MatchString(err.Error()) {
					return nil, err
				}
				return nil, &Unknown{fmt.Errorf("%s: %w", name, err), func(ctx context.Context) ([]*Job, error) { return send(ctx, false) }}
			}
			jobs = append(jobs, stored...)
			requests = requests[1:]
		}
		return jobs, nil
	}
	answer, err := send(ctx, true)
	if err == nil {
		e.slots.give(slot)
	}
	return answer, err
}

func (e *Enqueuer) put(ctx context.Context, name string, one request, at when, slotID string) ([]*Job, error) {
	job := one.drafts[0].job
	guard := e.prefix + "sent:" + slotID
	target, bell := "scheduled", "due"
	if at.mode == "now" {
		target, bell = "jobs:"+name, "bell:"+name
	}
	keys := []string{guard, e.prefix + target, e.prefix + "known_jobs", e.prefix + bell, guard, guard}
	if job.UniqueKey != "" {
		keys[4] = job.UniqueKey
	}
	if e.options.ID != "" {
		keys[5] = e.prefix + "id:" + job.ID
	}
	argv := []any{one.number, name, at.mode, at.amount, job.ID, e.options.UniqueFor.Milliseconds(), e.options.Expires.Milliseconds()}
	for _, draft := range one.drafts {
		argv = append(argv, draft.payload)
	}
	reply, err := script.Run(ctx, e.redis, keys, argv...).Slice()
	if err != nil {
		return nil, err
	}
	if reply[0] == "duplicate" {
		return nil, nil
	}
	jobs := make([]*Job, 0, len(one.drafts))
	for _, draft := range one.drafts {
		if due, ok := reply[1].(int64); ok && at.mode != "now" {
			draft.job.RunAt = time.UnixMilli(due)
		}
		jobs = append(jobs, draft.job)
	}
	return jobs, nil
}

// What Redis says only where nothing was stored before; any other error may be the answer to a resend.
var refusals = regexp.MustCompile(`^(WRONGTYPE|NOPERM|NOAUTH|WRONGPASS)\b`)

func (e *Enqueuer) check(name string) error {
	count := utf8.RuneCountInString(name)
	if count < 1 || count > 200 || !utf8.ValidString(name) || strings.IndexFunc(name, unfit) >= 0 {
		return invalid("job name %q: use 1 to 200 characters without spaces, : / | { }", name)
	}
	options := e.options
	if utf8.RuneCountInString(options.ID) > 200 || strings.IndexFunc(options.ID, unicode.IsControl) >= 0 {
		return invalid("Options.ID %q: give 1 to 200 characters without control characters", options.ID)
	}
	switch options.Source.(type) {
	case nil, string, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
	default:
		return invalid("Options.Source is a %T: give a string or an integer", options.Source)
	}
	if options.UniqueKey == "" {
		return invalid("Options.UniqueKey is empty: give a string, or Args")
	}
	if options.Expires != 0 && options.Expires < time.Millisecond || options.UniqueFor != 0 && options.UniqueFor < time.Millisecond {
		return invalid("Options.Expires and Options.UniqueFor must be a millisecond at least")
	}
	return nil
}

func unfit(char rune) bool {
	return unicode.IsSpace(char) || unicode.IsControl(char) || strings.ContainsRune(":/|{}", char)
}

// batches are requests of bounded size; a job with a unique key has one of its own.
func batches(drafts []draft) [][]draft {
	var found [][]draft
	size := mostBytes
	for _, one := range drafts {
		size += len(one.payload)
		if size > mostBytes || one.job.UniqueKey != "" || len(found[len(found)-1]) >= mostJobs {
			found = append(found, nil)
			size = len(one.payload)
		}
		found[len(found)-1] = append(found[len(found)-1], one)
	}
	return found
}

// Canonical is JSON with sorted keys at every depth, structs included, and otherwise as encoding/json writes it.
// Unique keys are made of it. A json.Number stays as it is, so 1.0 is not 1 there.
func Canonical(value any) (string, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return "", invalid("%v", err)
	}
	var plain any
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	if err := decoder.Decode(&plain); err != nil {
		return "", invalid("%v", err)
	}
	if encoded, err = json.Marshal(plain); err != nil {
		return "", invalid("%v", err)
	}
	return escapes.ReplaceAllStringFunc(string(encoded), shortEscape), nil
}

// Go before 1.22 wrote the long forms of \b and \f; keys must not change with the compiler.
var escapes = regexp.MustCompile(`\\(u0008|u000c|.)`)

func shortEscape(escape string) string {
	switch escape {
	case `\u0008`:
		return `\b`
	case `\u000c`:
		return `\f`
	}
	return escape
}

func invalid(format string, words ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, words...)...)
}

func newID() string {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		panic("dayjob: no random numbers: " + err.Error())
	}
	return hex.EncodeToString(id[:])
}

// slot is what Redis knows a request again by, with its number. It serves one call at a time.
type slot struct {
	id     string
	number int
}

type slots struct {
	lock sync.Mutex
	free []*slot
}

func (s *slots) take() *slot {
	s.lock.Lock()
	defer s.lock.Unlock()
	if last := len(s.free) - 1; last >= 0 {
		found := s.free[last]
		s.free = s.free[:last]
		return found
	}
	return &slot{id: newID()}
}

func (s *slots) give(one *slot) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.free = append(s.free, one)
}

var script = redis.NewScript(put)

// The script that stores jobs: clients/put.lua, word for word.
const put = `#!lua
--[[ put: store jobs of one name, for enqueuers in any language. The clients in this folder contain an exact copy of it.

KEYS[1]  sent:<slot>
KEYS[2]  queue, or scheduled
KEYS[3]  known_jobs
KEYS[4]  bell, or due
KEYS[5]  unique key, or KEYS[1] again where there is none
KEYS[6]  id:<id>, or KEYS[1] again where the caller did not choose the id
ARGV[1]  number of this request on its slot
ARGV[2]  job name
ARGV[3]  "now", "in" or "at"
ARGV[4]  milliseconds from now, or since the epoch; 0 for now
ARGV[5]  job id, for the unique key
ARGV[6]  milliseconds the unique key lives, counted from now; 0: thirty days after the job is due
ARGV[7]  milliseconds from now until the jobs expire, or 0. Above 0 each payload ends in "expires":<n>,"at":<n>}
ARGV[8...]  payloads, 500 at most; one where there is a unique key or a chosen id
Returns  {"stored" | "duplicate"; when it is due, Redis milliseconds; id of the holder of the unique key or ""}
Atomic because: a resend must find all or nothing, and two jobs with one key must not both get in.
]]
local sent, target, known, bell, unique, chosen = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local number, name, mode, amount, id = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local life, span = tonumber(ARGV[6]), tonumber(ARGV[7])
local is_unique, is_chosen = unique ~= sent, chosen ~= sent

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at = now
if mode == 'in' then at = now + amount end
if mode == 'at' then at = amount end

-- A resend, or a late copy: closing a socket does not recall what it sent.
local last = redis.call('GET', sent)
if last and tonumber(string.match(last, '^%d+')) >= tonumber(number) then
  local n, answer, first_at, holder = string.match(last, '^(%d+):(%a+):(-?%d+):(.*)$')
  if n == number then return {answer, tonumber(first_at), holder} end
  return {'stored', at, ''}
end
local function answered(answer, holder)
  redis.call('SET', sent, string.format('%s:%s:%d:%s', number, answer, at, holder), 'EX', 3600)
  return {answer, at, holder}
end

-- Check everything that a write below relies on: what a script wrote before an error stays written.
local function is_span(value) return value == 0 or value >= 1 and value < 1e15 end
if not (at > -1e15 and at < 1e15 and is_span(life) and is_span(span) and now + span < 1e15) then
  return redis.error_reply('ERR nothing was stored: the time to run, the life of the unique key or the expiry is out of range')
end
if span > 0 then
  -- Redis time decides when a job expires, not the clock of its enqueuer. Only that number is replaced.
  for i = 8, #ARGV do
    local head, tail = string.match(ARGV[i], '^(.*"expires":)%-?%d+(,"at":%-?%d+})$')
    if not head then
      return redis.error_reply('ERR nothing was stored: a payload does not end in "expires":<n>,"at":<n>}')
    end
    ARGV[i] = head .. string.format('%d', now + span) .. tail
  end
end
redis.call('SCARD', known)
local first = mode == 'now' and {} or redis.call('ZRANGE', target, 0, 0, 'WITHSCORES')
if is_chosen and redis.call('EXISTS', chosen) == 1 then
  return answered('stored', '')
end
if is_unique and redis.call('EXISTS', unique) == 1 then
  local holder = redis.pcall('GET', unique)
  return answered('duplicate', type(holder) == 'string' and holder or '')
end

for i = 8, #ARGV do
  if mode == 'now' then
    redis.call('LPUSH', target, ARGV[i])
  else
    redis.call('ZADD', target, string.format('%.3f', at / 1000), ARGV[i])
  end
end
if is_unique then
  if life == 0 then life = math.max(at - now, 0) + 2592000000 end
  redis.call('SET', unique, id, 'PX', string.format('%d', life))
end
if is_chosen then
  redis.call('SET', chosen, '1', 'EX', 86400)
end
redis.call('SADD', known, name)
-- A bell of a wrong type must not undo an enqueue; workers mend it.
if mode == 'now' or not first[2] or at / 1000 < tonumber(first[2]) then
  redis.pcall('ZADD', bell, 0, '1')
end
return answered('stored', '')
`
