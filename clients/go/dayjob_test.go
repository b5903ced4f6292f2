package dayjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func connect(t *testing.T) *redis.Client {
	t.Helper()
	url := os.Getenv("REDIS_URL")
	if url == "" {
		t.Fatal("REDIS_URL names the server to test with")
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}

func vectors(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "vectors", file+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

var idPlace = regexp.MustCompile(`%(\d+)%`)

// filled is value with namespace, ids and tagged values put in.
func filled(value any, ns string, ids []string) any {
	switch value := value.(type) {
	case string:
		return idPlace.ReplaceAllStringFunc(strings.ReplaceAll(value, "%ns%", ns), func(place string) string {
			return ids[must(strconv.Atoi(strings.Trim(place, "%")))-1]
		})
	case []any:
		list := make([]any, len(value))
		for i, one := range value {
			list[i] = filled(one, ns, ids)
		}
		return list
	case map[string]any:
		return filledMap(value, ns, ids)
	}
	return value
}

func filledMap(value map[string]any, ns string, ids []string) any {
	if digits, ok := value["$int"].(string); ok {
		number, _ := new(big.Int).SetString(digits, 10)
		return number
	}
	if text, ok := value["$float"].(string); ok {
		return must(strconv.ParseFloat(text, 64))
	}
	if pair, ok := value["$repeat"].([]any); ok {
		return strings.Repeat(pair[0].(string), int(pair[1].(float64)))
	}
	if count, ok := value["$count"].(float64); ok {
		list := make([]any, int(count))
		for i := range list {
			list[i] = map[string]any{"n": i}
		}
		return list
	}
	object := map[string]any{}
	for key, one := range value {
		object[filled(key, ns, ids).(string)] = filled(one, ns, ids)
	}
	return object
}

func TestCanonical(t *testing.T) {
	var found struct {
		Rows, Refused []struct {
			What, JSON string
			Value      any
		}
	}
	vectors(t, "canonical", &found)
	for _, row := range found.Rows {
		t.Run(row.What, func(t *testing.T) {
			encoded, err := Canonical(filled(row.Value, "", nil))
			if err != nil || encoded != row.JSON {
				t.Fatalf("%s, %v; want %s", encoded, err, row.JSON)
			}
		})
	}
	for _, row := range found.Refused {
		t.Run("refused: "+row.What, func(t *testing.T) {
			if _, err := Canonical(filled(row.Value, "", nil)); !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
		})
	}
}

func TestCanonicalSortsTheFieldsOfAStruct(t *testing.T) {
	type user struct {
		Name string `json:"name"`
		Age  int    `json:"age"`
	}
	if got := must(Canonical(Args{"user": user{"a", 7}})); got != `{"user":{"age":7,"name":"a"}}` {
		t.Fatal(got)
	}
}

type vector struct {
	What, Namespace string
	Given           [][]any
	Calls           []struct {
		Method, Name string
		Args         any
		Items        any
		Now          int64
		Seconds      *float64
		At           int64
		Using        map[string]any
	}
	Answers []any
	Keys    map[string]any
}

func TestVectors(t *testing.T) {
	var found struct{ Cases []vector }
	vectors(t, "enqueue", &found)
	client := connect(t)
	for _, one := range found.Cases {
		t.Run(one.What, func(t *testing.T) {
			for _, call := range one.Calls {
				for _, number := range []any{call.Seconds, call.Using["expires"], call.Using["unique_for"]} {
					if tooLong(number) {
						t.Skip("a time.Duration cannot be as long as this vector asks for")
					}
				}
			}
			run := &run{T: t, redis: client, ns: "t" + newID()[:12]}
			run.vector(one)
		})
	}
}

type run struct {
	*testing.T
	redis *redis.Client
	ns    string
	ids   []string
}

func (r *run) vector(one vector) {
	for _, command := range one.Given {
		must(r.redis.Do(ctx, filled(command, r.ns, nil).([]any)...).Result())
	}
	jobs := New(r.redis, filled(one.Namespace, r.ns, nil).(string))
	answers := []any{}
	for _, call := range one.Calls {
		jobs.now = func() time.Time { return time.UnixMilli(call.Now) }
		args, _ := filled(call.Args, r.ns, nil).(map[string]any)
		name := filled(call.Name, r.ns, nil).(string)
		enqueuer := jobs.Using(options(call.Using))
		var job *Job
		var err error
		switch call.Method {
		case "enqueue":
			job, err = enqueuer.Enqueue(ctx, name, args)
		case "enqueue_in":
			job, err = enqueuer.EnqueueIn(ctx, name, seconds(*call.Seconds), args)
		case "enqueue_at":
			job, err = enqueuer.EnqueueAt(ctx, name, time.UnixMilli(call.At), args)
		case "enqueue_unique":
			job, err = enqueuer.EnqueueUnique(ctx, name, args)
		case "enqueue_unique_in":
			job, err = enqueuer.EnqueueUniqueIn(ctx, name, seconds(*call.Seconds), args)
		case "enqueue_unique_at":
			job, err = enqueuer.EnqueueUniqueAt(ctx, name, time.UnixMilli(call.At), args)
		case "enqueue_many":
			var list []Args
			for _, item := range filled(call.Items, r.ns, nil).([]any) {
				list = append(list, item.(map[string]any))
			}
			var many []*Job
			many, err = enqueuer.EnqueueMany(ctx, name, list)
			for _, one := range many {
				r.ids = append(r.ids, one.ID)
			}
			if err == nil {
				answers = append(answers, float64(len(many)))
				continue
			}
		default:
			r.Fatal("no such method: ", call.Method)
		}
		answers = append(answers, r.answer(job, err))
	}
	if !reflect.DeepEqual(answers, one.Answers) {
		r.Fatalf("%v; want %v", answers, one.Answers)
	}
	for key, wanted := range filled(one.Keys, r.ns, r.ids).(map[string]any) {
		r.check(key, wanted)
	}
}

func (r *run) answer(job *Job, err error) string {
	switch {
	case err == nil:
		r.ids = append(r.ids, job.ID)
		return "stored"
	case errors.Is(err, ErrDuplicate):
		return "duplicate"
	case errors.Is(err, ErrInvalid):
		return "invalid"
	case strings.HasPrefix(err.Error(), "WRONGTYPE"):
		return "error"
	}
	r.Fatal(err)
	return ""
}

func tooLong(number any) bool {
	if pointer, ok := number.(*float64); ok && pointer != nil {
		number = *pointer
	}
	value, ok := number.(float64)
	return ok && value > time.Duration(math.MaxInt64).Seconds()
}

func seconds(number float64) time.Duration { return time.Duration(math.Round(number * 1e9)) }

func options(using map[string]any) (found Options) {
	for key, value := range using {
		switch key {
		case "id":
			found.ID = value.(string)
		case "source":
			found.Source = value
			if number, ok := value.(float64); ok {
				found.Source = int(number)
			}
		case "unique_key":
			found.UniqueKey = value
		case "unique_for":
			found.UniqueFor = seconds(value.(float64))
		case "expires":
			found.Expires = seconds(value.(float64))
		default:
			panic("no such option: " + key)
		}
	}
	return found
}

func (r *run) check(key string, wanted any) {
	if wanted == nil {
		r.equal(key, must(r.redis.Exists(ctx, key).Result()), int64(0))
		return
	}
	object := wanted.(map[string]any)
	for kind, value := range object {
		switch kind {
		case "list":
			found := must(r.redis.LRange(ctx, key, 0, -1).Result())
			for i, j := 0, len(found)-1; i < j; i, j = i+1, j-1 {
				found[i], found[j] = found[j], found[i]
			}
			r.payloads(key, found, texts(value))
		case "length":
			r.equal(key, float64(must(r.redis.LLen(ctx, key).Result())), value)
		case "set":
			found, names := must(r.redis.SMembers(ctx, key).Result()), texts(value)
			sort.Strings(found)
			sort.Strings(names)
			r.equal(key, found, names)
		case "has":
			for _, name := range texts(value) {
				r.equal(key, must(r.redis.SIsMember(ctx, key, name).Result()), true)
			}
		case "zset":
			r.checkZset(key, value.([]any))
		case "string":
			r.equal(key, must(r.redis.Get(ctx, key).Result()), value)
		case "ttl":
			r.between(key, value.(float64)-60, must(r.redis.TTL(ctx, key).Result()).Seconds(), value.(float64))
		default:
			r.Fatal("no such expectation: ", kind)
		}
	}
}

var expiry = regexp.MustCompile(`"expires":(\d+),"at":(\d+)}$`)

// payloads are equal but for the moment they expire: Redis time at the call, plus what the vector has after its `at`.
func (r *run) payloads(key string, found, wanted []string) {
	r.Helper()
	r.equal(key, len(found), len(wanted))
	for i, payload := range wanted {
		moments, mine := expiry.FindStringSubmatch(payload), expiry.FindStringSubmatchIndex(found[i])
		if moments != nil && mine != nil {
			expires, at := must(strconv.ParseFloat(moments[1], 64)), must(strconv.ParseFloat(moments[2], 64))
			stored := must(strconv.ParseFloat(found[i][mine[2]:mine[3]], 64)) - (expires - at)
			r.between(key, (r.now()-60)*1000, stored, r.now()*1000)
			found[i] = found[i][:mine[2]] + moments[1] + found[i][mine[3]:]
		}
	}
	r.equal(key, found, wanted)
}

// now is Redis time, in seconds.
func (r *run) now() float64 { return float64(must(r.redis.Time(ctx).Result()).UnixMicro()) / 1e6 }

func (r *run) checkZset(key string, wanted []any) {
	now := r.now()
	found := must(r.redis.ZRangeWithScores(ctx, key, 0, -1).Result())
	r.equal(key, len(found), len(wanted))
	for i, one := range wanted {
		pair := one.([]any)
		r.payloads(key, []string{found[i].Member.(string)}, []string{pair[0].(string)})
		if later, ok := pair[1].(map[string]any); ok {
			r.between(key, now-60, found[i].Score-later["in"].(float64), now)
		} else {
			r.equal(key, found[i].Score, pair[1])
		}
	}
}

func (r *run) equal(key string, found, wanted any) {
	r.Helper()
	if !reflect.DeepEqual(found, wanted) {
		r.Fatalf("%s: %v; want %v", key, found, wanted)
	}
}

func (r *run) between(key string, low, value, high float64) {
	r.Helper()
	if value < low || value > high {
		r.Fatalf("%s: %v is not from %v to %v", key, value, low, high)
	}
}

func texts(value any) []string {
	found := []string{}
	for _, one := range value.([]any) {
		found = append(found, one.(string))
	}
	return found
}

// waiting are the jobs of the queue a, the next first.
func waiting(t *testing.T, client *redis.Client, ns string) []map[string]any {
	t.Helper()
	raw := must(client.LRange(ctx, ns+":jobs:a", 0, -1).Result())
	found := []map[string]any{}
	for i := len(raw) - 1; i >= 0; i-- {
		var job map[string]any
		if err := json.Unmarshal([]byte(raw[i]), &job); err != nil {
			t.Fatal(err)
		}
		found = append(found, job)
	}
	return found
}

func numbers(jobs []map[string]any) (found []float64) {
	for _, job := range jobs {
		found = append(found, job["args"].(map[string]any)["n"].(float64))
	}
	return found
}

func start(t *testing.T) (*redis.Client, string, *Enqueuer) {
	t.Helper()
	client, ns := connect(t), "t"+newID()[:12]
	return client, ns, New(client, ns)
}

func TestIDsAre128RandomBits(t *testing.T) {
	_, _, jobs := start(t)
	seen := map[string]bool{}
	for i := 0; i < 5; i++ {
		seen[must(jobs.Enqueue(ctx, "a", nil)).ID] = true
	}
	if len(seen) != 5 {
		t.Fatal(seen)
	}
	for id := range seen {
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(id) {
			t.Fatal(id)
		}
	}
}

func TestTheClockIsTheMachinesUnlessToldOtherwise(t *testing.T) {
	client, ns, jobs := start(t)
	before := time.Now().Unix()
	must(jobs.Enqueue(ctx, "a", nil))
	job := waiting(t, client, ns)[0]
	if at := int64(job["t"].(float64)); at < before || at > time.Now().Unix() || at != int64(job["at"].(float64))/1000 {
		t.Fatal(job)
	}
}

func TestAStoredJobSaysWhenItWillRunAndUnderWhichKey(t *testing.T) {
	_, ns, jobs := start(t)
	job := must(jobs.Sourced("acme").EnqueueUniqueIn(ctx, "a", time.Minute, Args{"v": 1}))
	if off := time.Until(job.RunAt) - time.Minute; off > 30*time.Second || off < -30*time.Second {
		t.Fatal(job.RunAt)
	}
	if job.Name != "a" || job.Source != "acme" || job.UniqueKey != ns+":unique:a:{\"v\":1}\n" {
		t.Fatalf("%+v", job)
	}
}

func TestWhatNoJobCanHaveIsRefusedInWords(t *testing.T) {
	client, ns, jobs := start(t)
	refused := map[string]error{
		"a channel":     second(jobs.Enqueue(ctx, "a", Args{"x": make(chan int)})),
		"a float":       second(jobs.Sourced(1.5).Enqueue(ctx, "a", nil)),
		"one id":        second(jobs.Using(Options{ID: "x"}).EnqueueMany(ctx, "a", []Args{{}})),
		"a nanosecond":  second(jobs.Using(Options{Expires: 1}).Enqueue(ctx, "a", nil)),
		"text not UTF8": second(jobs.Enqueue(ctx, "a\xff", nil)),
		"far ahead":     second(jobs.EnqueueAt(ctx, "a", time.Unix(1e12, 0), nil)),
		"far behind":    second(jobs.EnqueueUniqueAt(ctx, "a", time.Unix(-1e12, 0), nil)),
		"too far":       second(jobs.EnqueueAt(ctx, "a", time.Unix(1<<62, 0), nil)),
	}
	for what, err := range refused {
		if !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), "dayjob: invalid: ") {
			t.Fatal(what, err)
		}
	}
	if found := must(client.Keys(ctx, ns+":*").Result()); len(found) != 0 {
		t.Fatal(found)
	}
}

func TestTheFurthestTimesAreStored(t *testing.T) {
	client, ns, jobs := start(t)
	must(jobs.Using(Options{Expires: math.MaxInt64}).Enqueue(ctx, "a", nil))
	must(jobs.Using(Options{UniqueFor: math.MaxInt64}).Enqueue(ctx, "a", nil))
	must(jobs.EnqueueUniqueIn(ctx, "a", math.MaxInt64, Args{"v": 1}))
	must(jobs.EnqueueAt(ctx, "a", time.Unix(1e12-2, 999_999_999), nil))
	if len(waiting(t, client, ns)) != 2 || must(client.ZCard(ctx, ns+":scheduled").Result()) != 2 {
		t.Fatal("not stored")
	}
}

func second[T any](_ T, err error) error { return err }

func TestCopiesMadeByUsingDoNotChangeTheFirst(t *testing.T) {
	client, ns, jobs := start(t)
	must(jobs.Sourced(1).Using(Options{Expires: time.Second}).Enqueue(ctx, "a", nil))
	must(jobs.Enqueue(ctx, "a", nil))
	found := waiting(t, client, ns)
	if found[0]["source"] == nil || found[0]["expires"] == nil || found[1]["source"] != nil {
		t.Fatal(found)
	}
}

func TestItWorksAfterTheScriptsWereFlushed(t *testing.T) {
	client, ns, jobs := start(t)
	must(client.ScriptFlush(ctx).Result())
	must(jobs.Enqueue(ctx, "a", nil))
	if len(waiting(t, client, ns)) != 1 {
		t.Fatal("not stored")
	}
}

func TestGoroutinesShareOneEnqueuer(t *testing.T) {
	client, ns, jobs := start(t)
	var group sync.WaitGroup
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			for n := 0; n < 25; n++ {
				must(jobs.Enqueue(ctx, "a", Args{"n": i*25 + n}))
			}
		}(i)
	}
	group.Wait()
	seen := map[float64]bool{}
	for _, n := range numbers(waiting(t, client, ns)) {
		seen[n] = true
	}
	if len(seen) != 200 {
		t.Fatal(len(seen))
	}
}

func TestARefusalIsTheLibrarysOwnError(t *testing.T) {
	client, ns, jobs := start(t)
	must(client.Set(ctx, ns+":jobs:a", "x", 0).Result())
	_, err := jobs.Enqueue(ctx, "a", nil)
	var unknown *Unknown
	if errors.As(err, &unknown) || !strings.HasPrefix(fmt.Sprint(err), "WRONGTYPE") {
		t.Fatal(err)
	}
}

// deaf is a hook that lets requests arrive and loses the answers, at once or after so many were heard.
type deaf struct {
	hears bool
	after int
	// spoil is called after the first answer.
	spoil func()
}

func (d *deaf) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *deaf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (d *deaf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		if err := next(ctx, command); err != nil || !strings.HasPrefix(command.Name(), "eval") {
			return err
		}
		if d.spoil != nil {
			d.spoil()
			d.spoil = nil
		}
		if d.after--; d.after == 0 {
			d.hears = false
		}
		if !d.hears {
			command.SetErr(net.ErrClosed)
			return net.ErrClosed
		}
		return nil
	}
}

func lost(t *testing.T, err error) *Unknown {
	t.Helper()
	var unknown *Unknown
	if !errors.As(err, &unknown) || !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	return unknown
}

func TestARepeatAfterItWasStoredStoresNothing(t *testing.T) {
	client, ns, _ := start(t)
	hook, other := &deaf{}, connect(t)
	other.AddHook(hook)
	jobs := New(other, ns)
	_, err := jobs.Enqueue(ctx, "a", Args{"n": 1})
	unknown := lost(t, err)
	hook.hears = true
	for i := 0; i < 3; i++ {
		if again := must(unknown.Repeat(ctx)); len(again) != 1 || again[0].ID != waiting(t, client, ns)[0]["id"] {
			t.Fatal(again)
		}
	}
	must(jobs.Enqueue(ctx, "a", Args{"n": 2}))
	if found := numbers(waiting(t, client, ns)); !reflect.DeepEqual(found, []float64{1, 2}) {
		t.Fatal(found)
	}
}

func TestARepeatOfManyGoesOnFromWhereItWas(t *testing.T) {
	client, ns, _ := start(t)
	hook, other := &deaf{hears: true, after: 2}, connect(t)
	other.AddHook(hook)
	list := make([]Args, 1200)
	for n := range list {
		list[n] = Args{"n": n}
	}
	_, err := New(other, ns).EnqueueMany(ctx, "a", list)
	unknown := lost(t, err)
	if count := len(waiting(t, client, ns)); count != 1000 {
		t.Fatal(count)
	}
	hook.hears = true
	if again := must(unknown.Repeat(ctx)); len(again) != 1200 {
		t.Fatal(len(again))
	}
	for n, found := range numbers(waiting(t, client, ns)) {
		if found != float64(n) {
			t.Fatal(n, found)
		}
	}
	if count := len(waiting(t, client, ns)); count != 1200 {
		t.Fatal(count)
	}
}

func TestARefusalAfterSomeWereStoredIsUnknown(t *testing.T) {
	client, ns, _ := start(t)
	hook, other := &deaf{hears: true}, connect(t)
	hook.spoil = func() {
		must(client.Rename(ctx, ns+":jobs:a", ns+":aside").Result())
		must(client.Set(ctx, ns+":jobs:a", "x", 0).Result())
	}
	other.AddHook(hook)
	list := make([]Args, 501)
	for n := range list {
		list[n] = Args{"n": n}
	}
	_, err := New(other, ns).EnqueueMany(ctx, "a", list)
	var unknown *Unknown
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Fatal(err)
	}
	must(client.Rename(ctx, ns+":aside", ns+":jobs:a").Result())
	if again := must(unknown.Repeat(ctx)); len(again) != 501 || len(waiting(t, client, ns)) != 501 {
		t.Fatal(len(again))
	}
}

func TestARepeatOfADuplicateIsStillADuplicate(t *testing.T) {
	client, ns, jobs := start(t)
	job := must(jobs.EnqueueUnique(ctx, "a", Args{"v": 1}))
	hook, other := &deaf{}, connect(t)
	other.AddHook(hook)
	_, err := New(other, ns).EnqueueUnique(ctx, "a", Args{"v": 1})
	unknown := lost(t, err)
	must(client.Del(ctx, job.UniqueKey).Result())
	hook.hears = true
	if again, err := unknown.Repeat(ctx); err != nil || len(again) != 0 {
		t.Fatal(again, err)
	}
	if count := len(waiting(t, client, ns)); count != 1 {
		t.Fatal(count)
	}
}
