// A resident client program on Go's net/http: what it sees is a status, headers and a body.
// It reads a task per line and answers with a line, as the other programs do.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	eventsBeforeLeaving = 2
	longestLine         = 1 << 20
)

type task struct {
	Do      string            `json:"do"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Text    string            `json:"text"`
	Seconds float64           `json:"seconds"`
}

type seen struct {
	Status  int               `json:"status,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body"`
	Error   string            `json:"error,omitempty"`
}

// nameOf returns what an application would compare an error with.
func nameOf(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "context.DeadlineExceeded"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "io.ErrUnexpectedEOF"
	case errors.Is(err, io.EOF):
		return "io.EOF"
	}
	return fmt.Sprintf("%T", err)
}

func ask(client *http.Client, one task) (found seen) {
	length := time.Duration(one.Seconds * float64(time.Second))
	ctx, leave := context.WithTimeout(context.Background(), length)
	defer leave()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, one.URL, strings.NewReader(one.Text))
	if err != nil {
		found.Error = nameOf(err)
		return found
	}
	for name, value := range one.Headers {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		found.Error = nameOf(err)
		return found
	}
	defer response.Body.Close()
	found.Status = response.StatusCode
	found.Headers = map[string]string{}
	for name, values := range response.Header {
		found.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	reader := bufio.NewReader(response.Body)
	for {
		line, err := reader.ReadString('\n')
		found.Body += line
		if one.Do == "leave" && strings.Count(found.Body, "\n\n") >= eventsBeforeLeaving {
			return found
		}
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return found
		}
		if err != nil {
			found.Error = nameOf(err)
			return found
		}
	}
}

func main() {
	client := &http.Client{Transport: &http.Transport{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var one task
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			fmt.Fprintln(os.Stderr, "not a task:", err)
			os.Exit(1)
		}
		if err := answers.Encode(ask(client, one)); err != nil {
			os.Exit(1)
		}
	}
}
