package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// The mutex that comes with etcd's own client. All locks of a process hang on one session, whose
// lease is kept alive.
type etcdSystem struct{ session *concurrency.Session }

func newEtcd(addresses []string, ttl time.Duration) system {
	client, err := clientv3.New(clientv3.Config{Endpoints: addresses})
	if err != nil {
		fail(err)
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(int(ttl/time.Second)))
	if err != nil {
		fail(fmt.Errorf("a session on %s: %w", strings.Join(addresses, ", "), err))
	}
	return etcdSystem{session}
}

func (s etcdSystem) try(name string) (release, error) {
	mutex := concurrency.NewMutex(s.session, name)
	return s.unlock(mutex), mutex.TryLock(context.Background())
}

func (s etcdSystem) wait(name string, deadline time.Time) (release, error) {
	mutex := concurrency.NewMutex(s.session, name)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	return s.unlock(mutex), mutex.Lock(ctx)
}

func (s etcdSystem) lost() <-chan struct{} {
	return s.session.Done()
}

func (s etcdSystem) unlock(mutex *concurrency.Mutex) release {
	return func() error {
		return mutex.Unlock(context.Background())
	}
}
