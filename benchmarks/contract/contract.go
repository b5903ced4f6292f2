// Package contract is what the Go programs share: settings, the ledger, and how enqueueing is timed. See contract.py.
package contract

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

type settings struct {
	Address      string
	Count, First int
	Names        []string
	Concurrency  int
	Config       string
	Gap, Sleep   time.Duration
	Offsets      []time.Duration
	Path         string
	Due          time.Time
	ledger       []byte
	counts       int
}

// Settings are read once from the environment.
var Settings = read()

func number(key string, otherwise float64) float64 {
	if value, err := strconv.ParseFloat(os.Getenv(key), 64); err == nil {
		return value
	}
	return otherwise
}

func read() settings {
	s := settings{
		Address:     strings.TrimPrefix(os.Getenv("BENCH_URL"), "redis://"),
		Count:       int(number("BENCH_COUNT", 1000)),
		First:       int(number("BENCH_FIRST", 0)),
		Concurrency: int(number("BENCH_CONCURRENCY", 10)),
		Config:      os.Getenv("BENCH_CONFIG"),
		Gap:         time.Duration(number("BENCH_GAP", 0) * 1e9),
		Sleep:       time.Duration(number("BENCH_SLEEP", 0) * 1e9),
		Path:        os.Getenv("BENCH_PATH"),
		Due:         time.Unix(0, int64(number("BENCH_DUE", 0)*1e9)),
	}
	for k := 0; k < int(number("BENCH_NAMES", 5)); k++ {
		s.Names = append(s.Names, "job"+strconv.Itoa(k))
	}
	if path := os.Getenv("BENCH_OFFSETS"); path != "" {
		found, err := os.ReadFile(path)
		Must(err)
		for at := 0; at < len(found); at += 8 {
			seconds := math.Float64frombits(binary.LittleEndian.Uint64(found[at:]))
			s.Offsets = append(s.Offsets, time.Duration(seconds*1e9))
		}
	}
	if path := os.Getenv("BENCH_LEDGER"); path != "" {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		Must(err)
		about, err := file.Stat()
		Must(err)
		s.ledger, err = syscall.Mmap(int(file.Fd()), 0, int(about.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		Must(err)
		s.counts = int(about.Size() / 9 * 8)
	}
	return s
}

// Must ends the program with the error, if there is one.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func now() float64 { return float64(time.Now().UnixNano()) / 1e9 }

func cpu() float64 {
	var used syscall.Rusage
	Must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Sec+used.Stime.Sec) + float64(used.Utime.Usec+used.Stime.Usec)/1e6
}

// Handle is what every handler does.
func Handle(i int) {
	word := (*uint64)(unsafe.Pointer(&Settings.ledger[8*i]))
	atomic.StoreUint64(word, math.Float64bits(now()))
	Settings.ledger[Settings.counts+i]++
	if Settings.Sleep > 0 {
		time.Sleep(Settings.Sleep)
	}
}

var (
	failing    sync.Mutex
	failedOnce = map[int]bool{}
	errWrong   = errors.New("a job that fails")
)

// FirstRun is the first of two executions that job i needs: one that fails, or one that enqueues another job.
func FirstRun(i int) { Handle(Settings.Count + i) }

// Take is what a handler does on the path that is measured.
func Take(i int) error {
	if Settings.Path == "raises" {
		Handle(i)
		return errWrong
	}
	if Settings.Path == "retry" {
		failing.Lock()
		again := failedOnce[i]
		failedOnce[i] = true
		failing.Unlock()
		if !again {
			FirstRun(i)
			return errWrong
		}
	}
	Handle(i)
	return nil
}

// Enqueue enqueues everything by this call and prints what it took. The first call is not timed: it connects.
func Enqueue(one func(name string, i int) error) {
	sent := []float64{now()}
	send := func(i int) { Must(one(Settings.Names[i%len(Settings.Names)], i)) }
	send(Settings.First)
	first, before := time.Now(), cpu()
	for k := 1; k < Settings.Count; k++ {
		if after := time.Duration(k) * Settings.Gap; after > 0 || Settings.Offsets != nil {
			if Settings.Offsets != nil {
				after = Settings.Offsets[k]
			}
			time.Sleep(time.Until(first.Add(after)))
			sent = append(sent, now())
		}
		send(Settings.First + k)
	}
	Must(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"count": Settings.Count - 1, "first": float64(first.UnixNano()) / 1e9, "last": now(),
		"cpu": cpu() - before, "sent": sent,
	}))
}

// UntilStopped waits for the signal that ends a worker.
func UntilStopped() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
}
