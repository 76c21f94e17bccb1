/* What the two programs of the lab share: time, growing buffers, sockets, WebSocket frames, the events of a turn.
 *
 * A turn with N deltas has N + 8 events: created, in_progress, output_item.added, content_part.added, N deltas,
 * output_text.done, content_part.done, output_item.done, completed. Each delta carries when it was sent, as
 * "@NANOSECONDS@", on the clock that both programs read. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define EVENTS_BEFORE_DELTAS 4
#define EVENTS_AROUND_DELTAS 8
#define READ_BYTES 65536

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

static void stop(const char *why) {
    fprintf(stderr, "lab: %s (%s)\n", why, strerror(errno));
    exit(2);
}

/* --- a turn's script ---------------------------------------------------------------------------------------------- */

static const char *const BEFORE_DELTAS[] = {"response.created", "response.in_progress", "response.output_item.added",
                                            "response.content_part.added"};
static const char *const BEHIND_DELTAS[] = {"response.output_text.done", "response.content_part.done",
                                            "response.output_item.done", "response.completed"};

typedef struct {
    int rate;      /* deltas per second; 0: as fast as the other side reads; -1: each when the client asks for it */
    int deltas;    /* how many */
    int pause_at;  /* silence before the event with this number; -1: none */
    int64_t pause; /* for that many nanoseconds */
} Script;

/* m-RATE-DELTAS, stepped-DELTAS (each delta when the client has the event before it), held-SECONDS (silence after
 * created), open-SECONDS (silence after the first delta). */
static bool script_of(const char *model, Script *script) {
    int seconds;
    *script = (Script){0, 1, -1, 0};
    if (sscanf(model, "m-%d-%d", &script->rate, &script->deltas) == 2)
        return script->rate >= 0 && script->deltas > 0 && script->deltas <= 100000;
    if (sscanf(model, "stepped-%d", &script->deltas) == 1) {
        script->rate = -1;
        return script->deltas > 0 && script->deltas <= 100000;
    }
    if (sscanf(model, "held-%d", &seconds) == 1) script->pause_at = 1;
    else if (sscanf(model, "open-%d", &seconds) == 1) script->pause_at = EVENTS_BEFORE_DELTAS + 1;
    script->pause = seconds * SECOND;
    return script->pause_at > 0;
}

static int events_of(const Script *script) { return script->deltas + EVENTS_AROUND_DELTAS; }

static bool is_delta(const Script *script, int number) {
    return number >= EVENTS_BEFORE_DELTAS && number < EVENTS_BEFORE_DELTAS + script->deltas;
}

static const char *type_of(const Script *script, int number) {
    if (number < EVENTS_BEFORE_DELTAS) return BEFORE_DELTAS[number];
    return is_delta(script, number) ? "response.output_text.delta"
                                    : BEHIND_DELTAS[number - EVENTS_BEFORE_DELTAS - script->deltas];
}

/* --- buffers ------------------------------------------------------------------------------------------------------ */

typedef struct {
    char *bytes;
    size_t begin, end, room; /* what is in it lies from begin to end */
} Buffer;

static size_t held(const Buffer *buffer) { return buffer->end - buffer->begin; }
static char *start_of(const Buffer *buffer) { return buffer->bytes + buffer->begin; }

static char *space_for(Buffer *buffer, size_t size) {
    if (buffer->begin == buffer->end) buffer->begin = buffer->end = 0;
    if (buffer->end + size > buffer->room && buffer->begin > 0) {
        memmove(buffer->bytes, start_of(buffer), held(buffer));
        buffer->end -= buffer->begin;
        buffer->begin = 0;
    }
    if (buffer->end + size > buffer->room) {
        buffer->room = (buffer->end + size) * 2;
        if (!(buffer->bytes = realloc(buffer->bytes, buffer->room))) stop("no memory");
    }
    return buffer->bytes + buffer->end;
}

static void append(Buffer *buffer, const void *bytes, size_t size) {
    memcpy(space_for(buffer, size), bytes, size);
    buffer->end += size;
}

static void take(Buffer *buffer, size_t size) {
    buffer->begin += size;
    if (buffer->begin == buffer->end) buffer->begin = buffer->end = 0;
}

static void release(Buffer *buffer) {
    free(buffer->bytes);
    *buffer = (Buffer){0};
}

static char *find(const char *bytes, size_t size, const char *text) { return memmem(bytes, size, text, strlen(text)); }

/* --- sockets ------------------------------------------------------------------------------------------------------ */

static void without_delay(int fd) { setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); }

static void watch(int epoll, int how, int fd, uint32_t events, void *who) {
    struct epoll_event event = {.events = events, .data.ptr = who};
    if (epoll_ctl(epoll, how, fd, &event) < 0) stop("epoll_ctl");
}

/* Whether the peer is still there. Reads once: what more there is makes epoll tell again. */
static bool read_some(int fd, Buffer *into) {
    ssize_t count = recv(fd, space_for(into, READ_BYTES), READ_BYTES, 0);
    if (count > 0) into->end += count;
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Whether the peer is still there; what it does not take now stays in the buffer. */
static bool write_some(int fd, Buffer *from) {
    while (held(from)) {
        ssize_t count = send(fd, start_of(from), held(from), MSG_NOSIGNAL);
        if (count < 0) return errno == EAGAIN || errno == EINTR;
        take(from, count);
    }
    return true;
}

static void raise_descriptor_limit(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    signal(SIGPIPE, SIG_IGN);
}

/* --- WebSocket frames (RFC 6455, 5.2) ----------------------------------------------------------------------------- */

enum { CONTINUATION = 0, TEXT = 1, CLOSE = 8, PING = 9, PONG = 10 };

typedef struct {
    int opcode;
    bool is_last;
    char *payload; /* in the buffer, unmasked in place */
    size_t size, whole;
} Frame;

/* Whether a whole frame lies at the buffer's start. */
static bool next_frame(Buffer *buffer, Frame *frame) {
    unsigned char *bytes = (unsigned char *)start_of(buffer);
    size_t head = 2, have = held(buffer);
    if (have < 2) return false;
    uint64_t size = bytes[1] & 127;
    int extra = size == 126 ? 2 : size == 127 ? 8 : 0;
    bool is_masked = bytes[1] & 128;
    if (have < head + extra + 4 * is_masked) return false;
    if (extra) size = 0;
    for (int i = 0; i < extra; i++) size = size << 8 | bytes[head++];
    unsigned char *mask = bytes + head;
    head += 4 * is_masked;
    if (have < head + size) return false;
    if (is_masked)
        for (uint64_t i = 0; i < size; i++) bytes[head + i] ^= mask[i & 3];
    *frame = (Frame){bytes[0] & 15, bytes[0] & 128, (char *)bytes + head, size, head + size};
    return true;
}

static void append_frame(Buffer *buffer, int opcode, const char *payload, size_t size, bool is_masked) {
    unsigned char head[14] = {128 | opcode}, *at = head + 2;
    if (size < 126) head[1] = size;
    else if (size < 65536) head[1] = 126, *at++ = size >> 8, *at++ = size;
    else {
        head[1] = 127;
        for (int shift = 56; shift >= 0; shift -= 8) *at++ = (uint64_t)size >> shift;
    }
    if (is_masked) head[1] |= 128, memcpy(at, "\x12\x34\x56\x78", 4), at += 4;
    append(buffer, head, at - head);
    append(buffer, payload, size);
    char *body = buffer->bytes + buffer->end - size;
    for (size_t i = 0; is_masked && i < size; i++) body[i] ^= "\x12\x34\x56\x78"[i & 3];
}
