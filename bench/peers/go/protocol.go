// The way in which the runner and its peers talk: see ../README.md.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const ttl = 10 * time.Second

// A release, or an error.
type release func() error

// What a library has to offer.
type system interface {
	// One attempt.
	try(name string) (release, error)
	// Attempts until the time is up.
	wait(name string, deadline time.Time) (release, error)
}

type arguments map[string]string

func (a arguments) number(key string) float64 {
	number, err := strconv.ParseFloat(a[key], 64)
	if err != nil {
		fail(fmt.Errorf("%s=%s is no number", key, a[key]))
	}
	return number
}

// A float is too coarse for these.
func (a arguments) nanoseconds(key string) int64 {
	number, err := strconv.ParseInt(a[key], 10, 64)
	if err != nil {
		fail(fmt.Errorf("%s=%s is no number", key, a[key]))
	}
	return number
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func monotonicNs() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		fail(err)
	}
	return now.Nano()
}

func cpuSeconds() float64 {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// Counts failures, and keeps the first.
type failures struct {
	mutex sync.Mutex
	count int
	first *string
}

func (f *failures) add(err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.count++
	if f.first == nil {
		text := err.Error()
		f.first = &text
	}
}

type cycleReport struct {
	Cycles     int     `json:"cycles"`
	Seconds    float64 `json:"seconds"`
	CpuSeconds float64 `json:"cpu_seconds"`
	P50Us      float64 `json:"p50_us"`
	P99Us      float64 `json:"p99_us"`
	Failed     int     `json:"failed"`
	Error      *string `json:"error"`
}

func cycle(s system, prefix string, concurrency int, count int64, seconds float64) cycleReport {
	var failed failures
	var begun atomic.Int64
	samples := make([][]int64, concurrency)
	cpu, start := cpuSeconds(), time.Now()
	end := start.Add(time.Duration(seconds * float64(time.Second)))
	var workers sync.WaitGroup
	for worker := range concurrency {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for serial := 0; time.Now().Before(end) && begun.Add(1) <= count; serial++ {
				name := fmt.Sprintf("%s/%d/%d", prefix, worker, serial)
				from := time.Now()
				release, err := s.try(name)
				if err == nil {
					err = release()
				}
				if err != nil {
					failed.add(err)
				} else {
					samples[worker] = append(samples[worker], int64(time.Since(from)))
				}
			}
		}()
	}
	workers.Wait()
	report := cycleReport{Seconds: time.Since(start).Seconds(), CpuSeconds: cpuSeconds() - cpu}
	var all []int64
	for _, some := range samples {
		all = append(all, some...)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	report.Cycles, report.Failed, report.Error = len(all), failed.count, failed.first
	if len(all) > 0 {
		report.P50Us = float64(all[(len(all)-1)/2]) / 1e3
		report.P99Us = float64(all[(len(all)-1)*99/100]) / 1e3
	}
	return report
}

type contendReport struct {
	Turns      [][4]int64 `json:"turns"`
	CpuSeconds float64    `json:"cpu_seconds"`
	Failed     int        `json:"failed"`
	Error      *string    `json:"error"`
}

func contend(s system, args arguments) contendReport {
	first, waiters := int(args.number("first")), int(args.number("waiters"))
	hold := time.Duration(args.number("hold_us")) * time.Microsecond
	from, to := args.nanoseconds("from_ns"), args.nanoseconds("to_ns")
	var failed failures
	var mutex sync.Mutex
	turns := [][4]int64{}
	cpu := cpuSeconds()
	var all sync.WaitGroup
	for waiter := first; waiter < first+waiters; waiter++ {
		all.Add(1)
		go func() {
			defer all.Done()
			time.Sleep(time.Duration(from - monotonicNs()))
			for {
				time.Sleep(2500*time.Microsecond + time.Duration(rand.Int63n(int64(5*time.Millisecond))))
				asked := monotonicNs()
				if asked >= to {
					return
				}
				turn := [4]int64{int64(waiter), asked, 0, 0}
				release, err := s.wait(args["name"], time.Now().Add(time.Duration(to-asked)))
				if err == nil {
					turn[2] = monotonicNs()
					time.Sleep(hold)
					turn[3] = monotonicNs()
					err = release()
				}
				// Whoever gets nothing by the end has waited in vain, and that is no failure.
				if err != nil && monotonicNs() < to {
					failed.add(err)
				}
				mutex.Lock()
				turns = append(turns, turn)
				mutex.Unlock()
			}
		}()
	}
	all.Wait()
	return contendReport{turns, cpuSeconds() - cpu, failed.count, failed.first}
}

func parse(words []string) arguments {
	args := arguments{}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		args[key] = value
	}
	return args
}

func round(s system, args arguments) any {
	switch args["workload"] {
	case "cycle":
		concurrency, count := int(args.number("concurrency")), int64(args.number("count"))
		return cycle(s, args["name"], concurrency, count, args.number("seconds"))
	case "contend":
		return contend(s, args)
	}
	fail(fmt.Errorf("there is no workload %q", args["workload"]))
	return nil
}

func main() {
	args := parse(os.Args[1:])
	var addresses []string
	for _, url := range strings.Split(args["nodes"], ",") {
		addresses = append(addresses, strings.TrimPrefix(url, "redis://"))
	}
	var s system
	switch args["system"] {
	case "redsync":
		s = newRedsync(addresses)
	case "rueidislock":
		s = newRueidislock(addresses)
	default:
		fail(fmt.Errorf("there is no system %q", args["system"]))
	}
	if first := cycle(s, fmt.Sprintf("bench/ready/%d", os.Getpid()), 1, 1, 60); first.Error != nil {
		fail(fmt.Errorf("the first lock: %s", *first.Error))
	}
	fmt.Println("ready")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		line, err := json.Marshal(round(s, parse(strings.Fields(input.Text()))))
		if err != nil {
			fail(err)
		}
		fmt.Println(string(line))
	}
}
