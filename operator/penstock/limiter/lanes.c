/* The lanes of token streams in C: what `PythonLanes` of lanes.py does, and nothing else.
 *
 * Why: a piece of a stream costs Python less in steps than in memory that is not in the processor's caches any more when
 * it comes. This touches one entry of a table, one buffer, and the code below.
 *
 * It knows nothing of Python, so one build serves every version of it. Everything outside the ordinary is handed back,
 * one thing at a time; what `next` returns is described in lanes.py.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

enum { READ_BYTES = 64 * 1024, BATCH_LIMIT = 256, MARK_LIMIT_BYTES = 64, LAYOUT = 1 };
enum { OVER, EVENT, NOT_WHOLE, NOT_READ, NOT_WRITTEN, PARTLY_WRITTEN, FAILED };

struct lane {
  int target; /* -1 without a lane */
  int mark_bytes;
  int64_t chunks;
  char mark[MARK_LIMIT_BYTES];
};

struct lanes {
  /* What both sides see; `Turn` in nativelanes.py has the same fields in the same order. */
  double until;
  int64_t bytes;
  int32_t returns;
  int32_t fresh;
  int32_t number;
  uint32_t events;
  int32_t error;
  int32_t length;
  int32_t sent;
  unsigned char data[READ_BYTES];
  /* Ours. */
  int epoll;
  int at, count;
  struct epoll_event batch[BATCH_LIMIT];
  int room;
  struct lane *lane;
};

/* So that a build in which the shared fields were others is noticed. */
int lanes_layout(void) { return LAYOUT; }

/* How much memory `lanes_begin` needs. It is Python's, so nothing here can outlive its owner. */
size_t lanes_size(void) { return sizeof(struct lanes); }

void lanes_begin(struct lanes *self, int epoll) {
  memset(self, 0, sizeof *self);
  self->epoll = epoll;
}

void lanes_end(struct lanes *self) {
  free(self->lane);
  self->lane = NULL;
  self->room = self->at = self->count = 0;
}

/* Returns 0, or -1 where the mark is too long or memory has run out. */
int lanes_open(struct lanes *self, int number, int target, const char *mark, int mark_bytes) {
  if (number < 0 || mark_bytes < 0 || mark_bytes > MARK_LIMIT_BYTES) return -1;
  if (number >= self->room) {
    int room = number + 64;
    struct lane *lane = realloc(self->lane, (size_t)room * sizeof *lane);
    if (!lane) return -1;
    for (int one = self->room; one < room; one++) lane[one] = (struct lane){.target = -1};
    self->lane = lane;
    self->room = room;
  }
  struct lane *lane = self->lane + number;
  lane->target = target;
  lane->chunks = 0;
  lane->mark_bytes = mark_bytes;
  if (mark_bytes) memcpy(lane->mark, mark, (size_t)mark_bytes);
  return 0;
}

/* Returns how many marked chunks went over the lane since it was opened, also when it is closed again. */
int64_t lanes_close(struct lanes *self, int number) {
  if (number < 0 || number >= self->room) return 0;
  self->lane[number].target = -1;
  return self->lane[number].chunks;
}

static int digit(unsigned char character) {
  if (character >= '0' && character <= '9') return character - '0';
  character |= 0x20;
  return character >= 'a' && character <= 'f' ? character - 'a' + 10 : -1;
}

/* Is this one chunk, from its size to its last CR LF, whose payload ends with an event? A size has up to three digits
 * here, as in Python; no event of one token is larger. */
static int is_whole(const unsigned char *data, int length) {
  int at = 0, size = 0, value;
  if (length < 6) return 0;
  for (; at < 3 && (value = digit(data[at])) >= 0; at++) size = size * 16 + value;
  return at && data[at] == '\r' && data[at + 1] == '\n' && at + 2 + size + 2 == length &&
         !memcmp(data + length - 4, "\n\n\r\n", 4);
}

/* Does a whole chunk have one event, and that the lane's mark? A CR in the payload may end another event. */
static int is_marked(const struct lane *lane, const unsigned char *data, int length) {
  const unsigned char *end = data + length - 4, *at = memchr(data, '\n', (size_t)length);
  if (memchr(at, '\r', (size_t)(end - at))) return 0;
  /* Line ends are few, so looking for one by one is cheaper than for two in a row. */
  while (at != end && (at = memchr(at, '\n', (size_t)(end + 1 - at))) && at != end) {
    if (at[1] == '\n') return 0;
    at++;
  }
  return at == end && memmem(data, (size_t)length, lane->mark, (size_t)lane->mark_bytes) != NULL;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Serve lanes until there is something for Python to do. */
int lanes_next(struct lanes *self) {
  for (;;) {
    while (self->at < self->count) {
      const struct epoll_event *event = self->batch + self->at++;
      int number = self->number = event->data.fd;
      struct lane *lane = number < self->room ? self->lane + number : NULL;
      self->events = event->events;
      if (!lane || lane->target < 0 || event->events != EPOLLIN) return EVENT;
      int length = self->length = (int)recv(number, self->data, READ_BYTES, MSG_DONTWAIT);
      if (length < 0) {
        self->error = errno;
        return NOT_READ;
      }
      if (!is_whole(self->data, length) || (lane->mark_bytes && !is_marked(lane, self->data, length))) return NOT_WHOLE;
      if (lane->mark_bytes) lane->chunks++;
      self->bytes += length;
      int sent = self->sent = (int)send(lane->target, self->data, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) {
        self->error = errno;
        return NOT_WRITTEN;
      }
      if (sent != length) return PARTLY_WRITTEN;
    }
    double left = self->until - now();
    if (!self->fresh && (self->returns || left <= 0)) return OVER;
    self->fresh = 0;
    self->at = self->count = 0;
    /* Rounded up: a timer that is due in a part of a millisecond would make us turn round until then. */
    int milliseconds = left <= 0 ? 0 : left < 1e6 ? (int)(left * 1e3 + 0.999) : 1000000000;
    int count = epoll_wait(self->epoll, self->batch, BATCH_LIMIT, milliseconds);
    if (count < 0 && errno == EINTR) return OVER; /* Python runs handlers of signals between its own steps */
    if (count < 0) {
      self->error = errno;
      return FAILED;
    }
    self->count = count;
  }
}
