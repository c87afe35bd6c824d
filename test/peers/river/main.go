// River as test/peers measures it beside Deadman. `river migrate` makes its tables; `river submit MODE WIDTH` and
// `river work MODE WIDTH` are the two processes of a run. They do what measure.mjs tells them, a line of JSON on
// standard input each, and answer on standard output: when a run begins, when it ends and what it used is decided
// there, as for the peers that are written for Node.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const schema = "river"

// noop is the payload of common.mjs: about 110 bytes, the same for every system.
type noop struct {
	ID   int     `json:"id"`
	To   string  `json:"to"`
	Type string  `json:"kind"`
	Note string  `json:"note"`
	Sent float64 `json:"t,omitempty"` // 0 where nobody asks how long its pick-up took
}

func (noop) Kind() string { return "noop" }

func payload(id int) noop {
	return noop{
		ID:   id,
		To:   "user" + strconv.Itoa(id) + "@example.com",
		Type: "noop",
		Note: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
	}
}

// order is what measure.mjs says. Which fields it sets depends on the kind.
type order struct {
	Kind              string
	ReportEvery       float64
	Width, Jobs, Size int
	Rate              float64
}

type answer map[string]any

var (
	saying sync.Mutex
	output = json.NewEncoder(os.Stdout)
)

func say(kind string, more answer) {
	saying.Lock()
	defer saying.Unlock()
	all := answer{"kind": kind}
	maps.Copy(all, more)
	must(output.Encode(all))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

// now is in milliseconds of the wall clock: Go shows no other that two processes share.
func now() float64 { return float64(time.Now().UnixMicro()) / 1e3 }

func usage() (cpu, rssMax float64) {
	var used syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e6, float64(used.Maxrss) / 1024
}

// connect opens a pool; `conns` 0 leaves its size to pgx.
func connect(ctx context.Context, conns int) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(os.Getenv("PEERS_DATABASE_URL"))
	must(err)
	if conns > 0 {
		config.MaxConns = int32(conns)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(err)
	must(pool.Ping(ctx))
	return pool
}

// settings are River's defaults, or the best that were found for a drain (`tuned`: those of its own `river bench`) or
// for pick-up (`latency`), without a timer per job. The cooldown also says how often a submitter sends a NOTIFY.
func settings(mode string) *river.Config {
	config := &river.Config{
		Schema: schema,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	switch mode {
	case "tuned":
		config.FetchCooldown, config.FetchPollInterval, config.JobTimeout = 2*time.Millisecond, 20*time.Millisecond, -1
	case "latency":
		config.FetchCooldown, config.FetchPollInterval, config.JobTimeout = 1*time.Millisecond, 5*time.Millisecond, -1
	}
	return config
}

func migrate(ctx context.Context) {
	migrator, err := rivermigrate.New(riverpgxv5.New(connect(ctx, 0)), &rivermigrate.Config{Schema: schema})
	must(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	must(err)
}

type submitter struct{ client *river.Client[pgx.Tx] }

func newSubmitter(ctx context.Context, mode string, width int) *submitter {
	client, err := river.NewClient(riverpgxv5.New(connect(ctx, min(width, 32))), settings(mode))
	must(err)
	return &submitter{client}
}

func (s *submitter) insert(ctx context.Context, args noop) {
	_, err := s.client.Insert(ctx, args, nil)
	must(err)
}

// singles has `width` submitters share `jobs` inserts.
func (s *submitter) singles(ctx context.Context, width, jobs int) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range width {
		group.Go(func() {
			for n := int(next.Add(1)); n <= jobs; n = int(next.Add(1)) {
				s.insert(ctx, payload(n))
			}
		})
	}
	group.Wait()
}

func (s *submitter) bulk(ctx context.Context, jobs, size int) {
	for from := 0; from < jobs; from += size {
		chunk := make([]river.InsertManyParams, 0, size)
		for n := from; n < min(from+size, jobs); n++ {
			chunk = append(chunk, river.InsertManyParams{Args: payload(n)})
		}
		_, err := s.client.InsertManyFast(ctx, chunk)
		must(err)
	}
}

// paced inserts at a random instant of every step, whether or not the last one was answered.
func (s *submitter) paced(ctx context.Context, rate float64, jobs int) {
	var group sync.WaitGroup
	start := time.Now()
	for n := range jobs {
		at := (float64(n) + rand.Float64()) / rate * float64(time.Second)
		time.Sleep(time.Until(start.Add(time.Duration(at))))
		args := payload(n)
		args.Sent = now()
		group.Go(func() { s.insert(ctx, args) })
	}
	group.Wait()
}

func (s *submitter) obey(ctx context.Context, told order) {
	switch told.Kind {
	case "singles":
		s.singles(ctx, told.Width, told.Jobs)
	case "bulk":
		s.bulk(ctx, told.Jobs, told.Size)
	case "paced":
		s.paced(ctx, told.Rate, told.Jobs)
	}
	say("submitted", nil)
}

func (s *submitter) figures() answer { return nil }

func (s *submitter) close(context.Context) {}

type worker struct {
	river.WorkerDefaults[noop]
	client  *river.Client[pgx.Tx]
	handled atomic.Int64
	waiting sync.Mutex
	waits   []float64
}

func newWorker(ctx context.Context, mode string) *worker {
	w := &worker{waits: []float64{}}
	// River has no default for its workers: its documentation begins with 100.
	config, conns, width := settings(mode), 0, 100
	if mode != "default" {
		conns, width = 25, 1000
	}
	config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: width}}
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, w)
	client, err := river.NewClient(riverpgxv5.New(connect(ctx, conns)), config)
	must(err)
	w.client = client
	return w
}

func (w *worker) Work(_ context.Context, job *river.Job[noop]) error {
	at := now()
	w.handled.Add(1)
	if job.Args.Sent > 0 {
		w.waiting.Lock()
		defer w.waiting.Unlock()
		w.waits = append(w.waits, at-job.Args.Sent)
	}
	return nil
}

func (w *worker) report(every time.Duration) {
	said := int64(0)
	for range time.Tick(every) {
		if handled := w.handled.Load(); handled != said {
			said = handled
			say("handled", answer{"handled": handled})
		}
	}
}

// taken are the latencies so far, which are forgotten.
func (w *worker) taken() []float64 {
	w.waiting.Lock()
	defer w.waiting.Unlock()
	taken := w.waits
	w.waits = []float64{}
	return taken
}

func (w *worker) obey(ctx context.Context, told order) {
	switch told.Kind {
	case "go":
		must(w.client.Start(ctx))
		go w.report(time.Duration(max(told.ReportEvery, 5)) * time.Millisecond)
		say("started", nil)
	case "forget":
		w.taken()
		say("forgot", answer{"handled": w.handled.Load()})
	}
}

func (w *worker) figures() answer {
	return answer{"handled": w.handled.Load(), "latencies": w.taken()}
}

func (w *worker) close(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_ = w.client.StopAndCancel(bounded)
}

// role is what a process of a run is started for.
type role interface {
	obey(ctx context.Context, told order)
	// figures is what it says last, beside what it used.
	figures() answer
	close(ctx context.Context)
}

func begin(ctx context.Context, name, mode, width string) role {
	if name == "work" {
		return newWorker(ctx, mode)
	}
	submitters, err := strconv.Atoi(width)
	must(err)
	return newSubmitter(ctx, mode, submitters)
}

func main() {
	ctx := context.Background()
	if os.Args[1] == "migrate" {
		migrate(ctx)
		return
	}
	process := begin(ctx, os.Args[1], os.Args[2], os.Args[3])
	input := json.NewDecoder(os.Stdin)
	begun := 0.0
	say("ready", nil)
	for {
		var told order
		// The end of its input is the end of whoever measures.
		must(input.Decode(&told))
		cpu, rss := usage()
		switch told.Kind {
		case "usage":
			say("usage", answer{"cpu": cpu - begun})
		case "stop":
			last := answer{"cpu": cpu - begun, "rss": rss}
			maps.Copy(last, process.figures())
			say("end", last)
			process.close(ctx)
			return
		case "go":
			begun = cpu
			fallthrough
		default:
			process.obey(ctx, told)
		}
	}
}
