//go:build released

package main

import (
	"errors"

	"github.com/gocraft/work"
	"github.com/gomodule/redigo/redis"
)

func newPool(context interface{}, concurrency uint, namespace string, pool *redis.Pool) *work.WorkerPool {
	return work.NewWorkerPool(context, concurrency, namespace, pool)
}

func enqueueByKey(*work.Enqueuer, request) (interface{}, error) {
	return nil, errors.New("this version has no unique jobs by key")
}
