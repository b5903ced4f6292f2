package main

import (
	"errors"
	"sync"

	"github.com/gocraft/work"
)

// jobSpec says how a job type is registered and what its handler does.
type jobSpec struct {
	// Does is "run", "fail", or "hold": run until the tests say release.
	Does           string `json:"does"`
	MaxFails       uint   `json:"max_fails"`
	MaxConcurrency uint   `json:"max_concurrency"`
	Backoff        int64  `json:"backoff"`
}

// run is a handler's call: begun when it was entered, ended when it returned.
type run struct {
	*work.Job
	Ended bool `json:"ended"`
}

type jobContext struct{}

// workers is one worker pool of the library and what its handlers saw.
type workers struct {
	mutex    sync.Mutex
	runs     []*run
	pool     *work.WorkerPool
	released chan struct{}
}

func (w *workers) start(p *program, asked request) error {
	if w.pool != nil {
		return errors.New("a pool is running: stop it first")
	}
	w.pool = newPool(jobContext{}, asked.Concurrency, p.namespace, p.redis)
	for name, spec := range asked.Jobs {
		spec := spec
		options := work.JobOptions{Priority: 1, MaxFails: spec.MaxFails, MaxConcurrency: spec.MaxConcurrency}
		if spec.Backoff != 0 {
			options.Backoff = func(*work.Job) int64 { return spec.Backoff }
		}
		w.pool.JobWithOptions(name, options, w.handler(spec))
	}
	for name, spec := range asked.Periodic {
		w.pool.PeriodicallyEnqueue(spec, name)
	}
	w.pool.Start()
	return nil
}

func (w *workers) handler(spec jobSpec) func(*work.Job) error {
	return func(job *work.Job) error {
		now := &run{Job: job}
		w.mutex.Lock()
		w.runs = append(w.runs, now)
		w.mutex.Unlock()
		if spec.Does == "hold" {
			<-w.released
		}
		w.mutex.Lock()
		now.Ended = true
		w.mutex.Unlock()
		if spec.Does == "fail" {
			return errors.New("go said no <&>")
		}
		return nil
	}
}

func (w *workers) seen() []run {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	seen := make([]run, 0, len(w.runs))
	for _, one := range w.runs {
		seen = append(seen, *one)
	}
	return seen
}

// release lets the handlers that hold return, now and from now on.
func (w *workers) release() error {
	close(w.released)
	return nil
}

func (w *workers) stop() error {
	if w.pool == nil {
		return errors.New("no pool is running")
	}
	w.pool.Stop()
	w.pool = nil
	return nil
}
