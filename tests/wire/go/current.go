//go:build !released

package main

import (
	"github.com/gocraft/work"
	"github.com/gomodule/redigo/redis"
)

// newPool makes a pool that does not sleep for seconds between two looks at its queues.
func newPool(context interface{}, concurrency uint, namespace string, pool *redis.Pool) *work.WorkerPool {
	often := work.WorkerPoolOptions{SleepBackoffs: []int64{0, 20}}
	return work.NewWorkerPoolWithOptions(context, concurrency, namespace, pool, often)
}

func enqueueByKey(enqueuer *work.Enqueuer, asked request) (interface{}, error) {
	if asked.Seconds != 0 {
		return enqueuer.EnqueueUniqueInByKey(asked.Name, asked.Seconds, asked.Args, asked.Key)
	}
	return enqueuer.EnqueueUniqueByKey(asked.Name, asked.Args, asked.Key)
}
