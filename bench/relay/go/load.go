package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	connectTimeout  = 5 * time.Second
	streamGrace     = 15 * time.Second // beyond the time the events themselves take; then the stream counts as short
	maximumIdle     = time.Second      // an older pooled connection may be closed under us: not the proxy's fault
	reasonsReported = 5
	systemPrompt    = "You are a patient assistant. Answer in short sentences, and say so when you do not know. "
)

// shape is one load: requests start evenly spaced so that `streams` of them run at any time, each of `chunks` events.
type shape struct {
	target  string
	nonce   string
	streams int
	chunks  int
	every   time.Duration
	aligned bool
	warmup  time.Duration
	measure time.Duration
}

func (s shape) duration() time.Duration { return time.Duration(s.chunks) * s.every }

// load starts request number n at its own moment whatever became of those before it (an open loop), so a slow proxy
// shows as delay and not as fewer requests.
type load struct {
	shape
	pool      pool
	measuring atomic.Bool
	events    atomic.Int64
	running   sync.WaitGroup
	mutex     sync.Mutex
	tally     tally
}

func runLoad(arguments []string) error {
	var asked shape
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	flags.StringVar(&asked.target, "target", "", "address of the proxy, or of the backend")
	flags.StringVar(&asked.nonce, "nonce", "", "nonce of the backend that must be the one to answer")
	flags.IntVar(&asked.streams, "streams", 256, "streams at any time")
	flags.IntVar(&asked.chunks, "chunks", 200, "events per stream")
	flags.DurationVar(&asked.every, "every", 20*time.Millisecond, "time between two events of a stream")
	flags.BoolVar(&asked.aligned, "aligned", false, "all streams get their events at the same moments")
	flags.DurationVar(&asked.warmup, "warmup", time.Second, "discarded time after all streams run")
	flags.DurationVar(&asked.measure, "measure", 8*time.Second, "measured time")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if asked.streams < 1 || asked.chunks < 1 || asked.every <= 0 {
		return errors.New("streams, chunks and every must be above zero")
	}
	running := &load{shape: asked, pool: pool{target: asked.target}}
	return running.run()
}

// run writes three lines of JSON: when measuring starts, when it ends, and the result.
func (l *load) run() error {
	lines := json.NewEncoder(os.Stdout)
	spacing := l.duration() / time.Duration(l.streams)
	origin := time.Now()
	begin := origin.Add(l.duration() + l.warmup)
	end := begin.Add(l.measure)
	var before int64
	reported := make(chan error, 1)
	go func() {
		time.Sleep(time.Until(begin))
		before = l.events.Load()
		l.measuring.Store(true)
		if err := lines.Encode(map[string]any{"event": "begin"}); err != nil {
			reported <- err
			return
		}
		time.Sleep(time.Until(end))
		during := l.events.Load() - before
		l.measuring.Store(false)
		reported <- lines.Encode(map[string]any{"event": "end", "events": during})
	}()
	for number := 0; ; number++ {
		due := origin.Add(time.Duration(number) * spacing)
		if due.After(end) {
			break
		}
		time.Sleep(time.Until(due))
		l.running.Add(1)
		go l.request(number, due)
	}
	if err := <-reported; err != nil {
		return err
	}
	l.running.Wait()
	return lines.Encode(l.tally.result())
}

func (l *load) request(number int, due time.Time) {
	defer l.running.Done()
	seen := observation{startLate: time.Since(due), measured: l.measuring.Load()}
	seen.outcome, seen.reason = classify(l.stream(number, &seen))
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.tally.add(&seen)
}

// stream makes one request and reads its answer to the end.
func (l *load) stream(number int, seen *observation) error {
	connection, err := l.pool.get()
	if err != nil {
		return failure{outcomeRefused, err}
	}
	reusable := false
	defer func() {
		if reusable {
			l.pool.put(connection)
		} else {
			connection.Close()
		}
	}()
	sent := time.Now()
	if err := connection.SetDeadline(sent.Add(l.duration() + streamGrace)); err != nil {
		return failure{outcomeRefused, err}
	}
	if _, err := connection.Write(l.requestBytes(number)); err != nil {
		return failure{outcomeRefused, err}
	}
	head, err := readHead(connection.from)
	if err != nil {
		return failure{outcomeRefused, fmt.Errorf("no response head: %w", err)}
	}
	if status := strings.SplitN(head.first, " ", 3); len(status) < 2 || status[1] != "200" {
		return failure{outcomeRefused, fmt.Errorf("answered %q", head.first)}
	}
	if !strings.HasPrefix(head.contentType, "text/event-stream") {
		return failure{outcomeCorrupt, fmt.Errorf("content-type %q", head.contentType)}
	}
	body := checker{
		frame: newEventFrame(l.nonce, number), expected: l.chunks,
		onEvent: func(at time.Time, late time.Duration) {
			l.events.Add(1)
			if l.measuring.Load() {
				seen.delays = append(seen.delays, microseconds(time.Since(at)))
				seen.ticksLate = append(seen.ticksLate, microseconds(late))
			}
		},
	}
	err = readBody(connection.from, head, func(piece []byte) error {
		if seen.firstByte == 0 {
			seen.firstByte = time.Since(sent)
		}
		if err := body.write(piece); err != nil {
			return failure{outcomeCorrupt, err}
		}
		return nil
	})
	if err != nil {
		var known failure
		if errors.As(err, &known) {
			return err
		}
		return failure{outcomeShort, fmt.Errorf("after %d of %d events: %w", body.seen, l.chunks, err)}
	}
	if !body.ended {
		return failure{outcomeShort, fmt.Errorf("body ended after %d of %d events", body.seen, l.chunks)}
	}
	reusable = !head.closes && head.chunked
	return nil
}

func (l *load) requestBytes(number int) []byte {
	body := fmt.Sprintf(`{"model":"bench","stream":true,"max_tokens":%d,"seed":%d,"temperature":0.7,`+
		`"bench_interval_us":%d,"bench_aligned":%t,"messages":[{"role":"system","content":"%s"},`+
		`{"role":"user","content":"Question %d: what does a penstock do, and who opens it?"}]}`,
		l.chunks, number, l.every.Microseconds(), l.aligned, strings.Repeat(systemPrompt, 4), number)
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nUser-Agent: relaybench\r\n"+
		"Accept: text/event-stream\r\nAuthorization: Bearer sk-bench\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", l.target, len(body), body)
}

// pool keeps connections that ended a stream well, the latest on top.
type pool struct {
	target string
	mutex  sync.Mutex
	idle   []*pooled
}

type pooled struct {
	net.Conn
	from  *bufio.Reader
	since time.Time
}

func (p *pool) get() (*pooled, error) {
	p.mutex.Lock()
	if last := len(p.idle) - 1; last >= 0 {
		connection := p.idle[last]
		if time.Since(connection.since) < maximumIdle {
			p.idle = p.idle[:last]
			p.mutex.Unlock()
			return connection, nil
		}
		for _, stale := range p.idle {
			stale.Close()
		}
		p.idle = p.idle[:0]
	}
	p.mutex.Unlock()
	connection, err := net.DialTimeout("tcp4", p.target, connectTimeout)
	if err != nil {
		return nil, err
	}
	return &pooled{Conn: connection, from: bufio.NewReaderSize(connection, readBufferBytes)}, nil
}

func (p *pool) put(connection *pooled) {
	connection.since = time.Now()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.idle = append(p.idle, connection)
}
