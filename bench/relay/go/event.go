package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"
)

// One event is one line of server-sent events of the size a real engine sends for a token. Every event of a stream has
// the same length and the same bytes except for three fields of fixed width, so that a reader can tell a lost, doubled,
// foreign or changed event from the right one without parsing JSON:
//
//	number  which event of the stream this is, from 0
//	sent    wall clock in nanoseconds just before it was written
//	late    microseconds it was written after its time
//
// After the last event comes a comment with the CRC-32 of all event bytes, then the end mark that clients wait for.
const (
	eventHead = `data: {"id":"chatcmpl-%s-%08d","object":"chat.completion.chunk","created":1795973169,"model":"bench",` +
		`"choices":[{"index":0,"delta":{"content":" `
	eventTail = `"},"logprobs":null,"finish_reason":null,"token_ids":null}]}` + "\n\n"

	numberDigits = 6
	sentDigits   = 19
	lateDigits   = 8
	fieldsLength = numberDigits + 1 + sentDigits + 1 + lateDigits

	promptTokens = 128
	usageLayout  = `data: {"id":"chatcmpl-%s-%08d","object":"chat.completion.chunk","created":1795973169,"model":"bench",` +
		`"choices":[],"usage":{"prompt_tokens":128,"completion_tokens":%d,"total_tokens":%d}}` + "\n\n"

	endLayout = ": crc32 %08x\n\ndata: [DONE]\n\n"
)

var endLength = len(fmt.Sprintf(endLayout, 0))

// eventFrame holds the unchanging bytes of one stream's events.
type eventFrame struct{ head, tail []byte }

func newEventFrame(nonce string, request int) eventFrame {
	return eventFrame{head: fmt.Appendf(nil, eventHead, nonce, request), tail: []byte(eventTail)}
}

func (f eventFrame) length() int { return len(f.head) + fieldsLength + len(f.tail) }

func (f eventFrame) append(to []byte, number int, sent time.Time, late time.Duration) []byte {
	to = append(to, f.head...)
	to = appendDigits(to, int64(number), numberDigits)
	to = append(to, ' ')
	to = appendDigits(to, sent.UnixNano(), sentDigits)
	to = append(to, ' ')
	to = appendDigits(to, late.Microseconds(), lateDigits)
	return append(to, f.tail...)
}

// checker reads the body of one stream piece by piece, as it comes off the connection.
type checker struct {
	frame    eventFrame
	expected int
	seen     int
	sum      uint32
	pending  []byte
	ended    bool
	onEvent  func(sent time.Time, late time.Duration)
}

func (c *checker) write(piece []byte) error {
	if c.ended && len(piece) > 0 {
		return fmt.Errorf("%d bytes after the end mark", len(piece))
	}
	if len(c.pending) > 0 {
		c.pending = append(c.pending, piece...)
		piece = c.pending
	}
	length := c.frame.length()
	for c.seen < c.expected && len(piece) >= length {
		if err := c.event(piece[:length]); err != nil {
			return err
		}
		piece = piece[length:]
	}
	if c.seen == c.expected && len(piece) >= endLength {
		if want := fmt.Sprintf(endLayout, c.sum); string(piece) != want {
			return fmt.Errorf("end of stream is %.80q, not %q", piece, want)
		}
		c.ended, piece = true, nil
	}
	c.pending = append(c.pending[:0], piece...)
	return nil
}

func (c *checker) event(event []byte) error {
	fields, ok := bytes.CutPrefix(event, c.frame.head)
	if ok {
		fields, ok = bytes.CutSuffix(fields, c.frame.tail)
	}
	if !ok {
		return fmt.Errorf("event %d is not of this stream: %.120q", c.seen, event)
	}
	number, errNumber := strconv.Atoi(string(fields[:numberDigits]))
	sent, errSent := strconv.ParseInt(string(fields[numberDigits+1:numberDigits+1+sentDigits]), 10, 64)
	late, errLate := strconv.ParseInt(string(fields[fieldsLength-lateDigits:]), 10, 64)
	if errNumber != nil || errSent != nil || errLate != nil {
		return fmt.Errorf("event %d has broken fields: %q", c.seen, fields)
	}
	if number != c.seen {
		return fmt.Errorf("event %d came in place of event %d", number, c.seen)
	}
	c.seen++
	c.sum = crc32.Update(c.sum, crc32.IEEETable, event)
	c.onEvent(time.Unix(0, sent), time.Duration(late)*time.Microsecond)
	return nil
}

func appendDigits(to []byte, value int64, width int) []byte {
	start := len(to)
	for range width {
		to = append(to, '0')
	}
	for at := len(to) - 1; at >= start && value > 0; at-- {
		to[at] = byte('0' + value%10)
		value /= 10
	}
	return to
}
