// gocraft/work under the contract of contract.py.
package main

import (
	"os"
	"time"

	"dayjob/benchmarks/contract"
	"github.com/gocraft/work"
	"github.com/gomodule/redigo/redis"
)

var enqueuer *work.Enqueuer

type jobContext struct{}

func (*jobContext) run(job *work.Job) error { return contract.Take(int(job.ArgInt64("i"))) }

func (*jobContext) parent(job *work.Job) error {
	contract.FirstRun(int(job.ArgInt64("i")))
	_, err := enqueuer.Enqueue("child", work.Q{"i": job.ArgInt64("i")})
	return err
}

func send(name string, i int) (err error) {
	switch args := (work.Q{"i": i}); contract.Settings.Path {
	case "scheduled":
		_, err = enqueuer.EnqueueIn(name, int64(time.Until(contract.Settings.Due).Seconds()), args)
	case "unique":
		_, err = enqueuer.EnqueueUnique(name, args)
	default:
		_, err = enqueuer.Enqueue(name, args)
	}
	return err
}

func main() {
	size := contract.Settings.Concurrency + 5
	pool := &redis.Pool{
		MaxActive: size, MaxIdle: size, Wait: true, IdleTimeout: time.Minute,
		Dial: func() (redis.Conn, error) { return redis.Dial("tcp", contract.Settings.Address) },
	}
	enqueuer = work.NewEnqueuer("bench", pool)
	if os.Args[1] == "enqueue" {
		contract.Enqueue(send)
		return
	}
	workers := work.NewWorkerPool(jobContext{}, uint(contract.Settings.Concurrency), "bench", pool)
	options := map[string]work.JobOptions{
		"raises":  {MaxFails: 1},
		"retry":   {MaxFails: 2, Backoff: func(*work.Job) int64 { return 0 }},
		"limited": {MaxConcurrency: 5},
	}[contract.Settings.Path]
	handler := (*jobContext).run
	if contract.Settings.Path == "nested" {
		handler = (*jobContext).parent
	}
	for _, name := range contract.Settings.Names {
		workers.JobWithOptions(name, options, handler)
	}
	workers.JobWithOptions("child", work.JobOptions{}, (*jobContext).run)
	workers.Start()
	contract.UntilStopped()
	workers.Stop()
}
