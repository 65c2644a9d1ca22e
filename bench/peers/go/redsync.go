package main

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

type redsyncSystem struct{ redsync *redsync.Redsync }

func newRedsync(addresses []string) system {
	var pools []redis.Pool
	for _, address := range addresses {
		client := goredislib.NewClient(&goredislib.Options{Addr: address})
		pools = append(pools, goredis.NewPool(client))
	}
	return redsyncSystem{redsync.New(pools...)}
}

func (s redsyncSystem) try(name string) (release, error) {
	mutex := s.redsync.NewMutex(name, redsync.WithExpiry(ttl))
	return unlock(mutex), mutex.TryLock()
}

func (s redsyncSystem) wait(name string, deadline time.Time) (release, error) {
	mutex := s.redsync.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt))
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	return unlock(mutex), mutex.LockContext(ctx)
}

func unlock(mutex *redsync.Mutex) release {
	return func() error {
		released, err := mutex.Unlock()
		// An error of one node is none of the lock, if enough others have released it.
		if released {
			return nil
		}
		if err == nil {
			err = errors.New("not released")
		}
		return err
	}
}
