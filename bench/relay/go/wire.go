package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const maximumHeadLines = 100

// message is the head of a request or a response: its first line and the few headers both ends look at.
type message struct {
	first         string
	contentType   string
	contentLength int64 // -1: not given
	chunked       bool
	closes        bool
}

// readHead reads up to and including the empty line. io.EOF means that nothing came at all.
func readHead(from *bufio.Reader) (message, error) {
	head := message{contentLength: -1}
	for number := range maximumHeadLines {
		line, err := from.ReadString('\n')
		if err != nil {
			if number > 0 || line != "" {
				err = io.ErrUnexpectedEOF
			}
			return head, err
		}
		line = strings.TrimRight(line, "\r\n")
		if number == 0 {
			head.first = line
			continue
		}
		if line == "" {
			return head, nil
		}
		if err := head.note(line); err != nil {
			return head, err
		}
	}
	return head, errors.New("more than 100 header lines")
}

func (m *message) note(line string) error {
	name, value, found := strings.Cut(line, ":")
	if !found {
		return fmt.Errorf("header line without a colon: %.80q", line)
	}
	value = strings.TrimSpace(value)
	switch strings.ToLower(name) {
	case "content-type":
		m.contentType = value
	case "content-length":
		length, err := strconv.ParseInt(value, 10, 64)
		if err != nil || length < 0 {
			return fmt.Errorf("content-length %q", value)
		}
		m.contentLength = length
	case "transfer-encoding":
		m.chunked = strings.EqualFold(value, "chunked")
	case "connection":
		m.closes = strings.EqualFold(value, "close")
	}
	return nil
}

// readBody hands the body to `take` as it arrives: one call for what one read brought, never across an HTTP chunk.
// A response without length and chunks ends with the connection.
func readBody(from *bufio.Reader, head message, take func([]byte) error) error {
	if head.chunked {
		return readChunks(from, take)
	}
	if head.contentLength >= 0 {
		return readExactly(from, head.contentLength, take)
	}
	for {
		piece, err := nextPiece(from, 1<<30)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := take(piece); err != nil {
			return err
		}
	}
}

func readChunks(from *bufio.Reader, take func([]byte) error) error {
	for {
		line, err := from.ReadSlice('\n')
		if err != nil {
			return unexpected(err)
		}
		size, err := parseSize(line)
		if err != nil {
			return err
		}
		if err := readExactly(from, size, take); err != nil {
			return err
		}
		end, err := from.ReadSlice('\n')
		if err != nil {
			return unexpected(err)
		}
		if string(end) != "\r\n" {
			return fmt.Errorf("chunk of %d bytes is followed by %.40q", size, end)
		}
		if size == 0 {
			return nil
		}
	}
}

func parseSize(line []byte) (int64, error) {
	digits, _, _ := strings.Cut(strings.TrimRight(string(line), "\r\n"), ";")
	size, err := strconv.ParseInt(digits, 16, 32)
	if err != nil || size < 0 {
		return 0, fmt.Errorf("chunk size %.40q", digits)
	}
	return size, nil
}

func readExactly(from *bufio.Reader, length int64, take func([]byte) error) error {
	for length > 0 {
		piece, err := nextPiece(from, length)
		if err != nil {
			return unexpected(err)
		}
		length -= int64(len(piece))
		if err := take(piece); err != nil {
			return err
		}
	}
	return nil
}

// nextPiece returns what is buffered, at most `limit` bytes, after waiting for at least one byte. The bytes are valid
// until the next read.
func nextPiece(from *bufio.Reader, limit int64) ([]byte, error) {
	if from.Buffered() == 0 {
		if _, err := from.Peek(1); err != nil {
			return nil, err
		}
	}
	piece, err := from.Peek(int(min(limit, int64(from.Buffered()))))
	if err != nil {
		return nil, err
	}
	_, err = from.Discard(len(piece))
	return piece, err
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
