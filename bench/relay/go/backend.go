package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"net"
	"strings"
	"time"
)

const (
	readBufferBytes    = 8 << 10
	maximumBodyBytes   = 1 << 20
	streamResponseHead = "HTTP/1.1 200 OK\r\nserver: relaybench\r\ncontent-type: text/event-stream; charset=utf-8\r\n" +
		"transfer-encoding: chunked\r\n\r\n"
)

// streamRequest is what the backend reads of a chat completion request. The interval is a field of ours: an engine
// generates at its own speed, this one at the speed it is told.
type streamRequest struct {
	MaxTokens  int   `json:"max_tokens"`
	Seed       int   `json:"seed"`
	IntervalUS int64 `json:"bench_interval_us"`
	Aligned    bool  `json:"bench_aligned"`
	Options    struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type backend struct {
	nonce   string
	metrics string
}

func runBackend(arguments []string) error {
	flags := flag.NewFlagSet("backend", flag.ExitOnError)
	port := flags.Int("port", 0, "port on 127.0.0.1")
	nonce := flags.String("nonce", "", "goes into every event id, so that a reader knows whose answer it has")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		return err
	}
	serving := backend{nonce: *nonce, metrics: engineMetrics()}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go serving.serve(connection)
	}
}

// serve answers requests until the other side closes. Errors end the connection and nothing else: what they cut
// short is seen and counted by the load side.
func (b *backend) serve(connection net.Conn) {
	defer connection.Close()
	from := bufio.NewReaderSize(connection, readBufferBytes)
	for {
		head, err := readHead(from)
		if err != nil {
			return
		}
		if !head.chunked && head.contentLength < 0 {
			head.contentLength = 0
		}
		var body []byte
		err = readBody(from, head, func(piece []byte) error {
			body = append(body, piece...)
			if len(body) > maximumBodyBytes {
				return errors.New("request body over 1 MiB")
			}
			return nil
		})
		if err != nil {
			return
		}
		if b.answer(connection, head.first, body) != nil || head.closes {
			return
		}
	}
}

func (b *backend) answer(connection net.Conn, requestLine string, body []byte) error {
	method, rest, _ := strings.Cut(requestLine, " ")
	path, _, _ := strings.Cut(rest, " ")
	switch method + " " + path {
	case "GET /health":
		return plain(connection, "200 OK", "text/plain", "")
	case "GET /metrics":
		return plain(connection, "200 OK", "text/plain; version=0.0.4; charset=utf-8", b.metrics)
	case "GET /v1/models":
		return plain(connection, "200 OK", "application/json",
			`{"object":"list","data":[{"id":"bench","object":"model","created":1795973169,"owned_by":"relaybench"}]}`)
	case "GET /nonce":
		return plain(connection, "200 OK", "text/plain", b.nonce)
	case "POST /v1/chat/completions":
		var request streamRequest
		if err := json.Unmarshal(body, &request); err != nil || request.MaxTokens < 1 || request.IntervalUS < 1 {
			return plain(connection, "400 Bad Request", "text/plain", "max_tokens and bench_interval_us must be given")
		}
		return b.stream(connection, request)
	default:
		return plain(connection, "404 Not Found", "text/plain", "no such path")
	}
}

func plain(connection net.Conn, status, contentType, body string) error {
	_, err := fmt.Fprintf(connection, "HTTP/1.1 %s\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s",
		status, contentType, len(body), body)
	return err
}

// stream writes one HTTP chunk per event, the first at once and every other one at its own time: event n is due n
// intervals after the first, however late those before it were. Aligned streams are all due at the same moments, as
// the streams of an engine that generates one token for each of them per step.
func (b *backend) stream(connection net.Conn, request streamRequest) error {
	if _, err := connection.Write([]byte(streamResponseHead)); err != nil {
		return err
	}
	interval := time.Duration(request.IntervalUS) * time.Microsecond
	frame := newEventFrame(b.nonce, request.Seed)
	var sum uint32
	buffer := make([]byte, 0, frame.length()+16)
	start := time.Now()
	due := start
	for number := range request.MaxTokens {
		if number == 1 && request.Aligned {
			due = start.Add(interval - time.Duration(start.UnixNano()%int64(interval)))
		} else if number > 0 {
			due = due.Add(interval)
		}
		time.Sleep(time.Until(due))
		now := time.Now()
		buffer = fmt.Appendf(buffer[:0], "%x\r\n", frame.length())
		at := len(buffer)
		buffer = frame.append(buffer, number, now, now.Sub(due))
		sum = crc32.Update(sum, crc32.IEEETable, buffer[at:])
		buffer = append(buffer, "\r\n"...)
		if _, err := connection.Write(buffer); err != nil {
			return err
		}
	}
	if request.Options.IncludeUsage { // the load never asks for it, so whoever did has to take it out again
		usage := fmt.Sprintf(usageLayout, b.nonce, request.Seed, request.MaxTokens, promptTokens+request.MaxTokens)
		if _, err := fmt.Fprintf(connection, "%x\r\n%s\r\n", len(usage), usage); err != nil {
			return err
		}
	}
	end := fmt.Sprintf(endLayout, sum)
	_, err := fmt.Fprintf(connection, "%x\r\n%s\r\n0\r\n\r\n", len(end), end)
	return err
}
