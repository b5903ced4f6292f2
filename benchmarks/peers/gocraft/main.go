// gocraft/work under the contract of contract.py.
package main

import (
	"os"
	"time"

	"dayjob/benchmarks/contract"
	"github.com/gocraft/work"
	"github.com/gomodule/redigo/redis"
)

type jobContext struct{}

func (*jobContext) run(job *work.Job) error {
	contract.Handle(int(job.ArgInt64("i")))
	return nil
}

func main() {
	size := contract.Settings.Concurrency + 5
	pool := &redis.Pool{
		MaxActive: size, MaxIdle: size, Wait: true, IdleTimeout: time.Minute,
		Dial: func() (redis.Conn, error) { return redis.Dial("tcp", contract.Settings.Address) },
	}
	if os.Args[1] == "enqueue" {
		enqueuer := work.NewEnqueuer("bench", pool)
		contract.Enqueue(func(name string, i int) error {
			_, err := enqueuer.Enqueue(name, work.Q{"i": i})
			return err
		})
		return
	}
	workers := work.NewWorkerPool(jobContext{}, uint(contract.Settings.Concurrency), "bench", pool)
	for _, name := range contract.Settings.Names {
		workers.Job(name, (*jobContext).run)
	}
	workers.Start()
	contract.UntilStopped()
	workers.Stop()
}
