/* A load client of the Responses API: turns one after another on each of many connections, over HTTP/SSE or WebSocket.
 *
 *     load port=8080 door=http|websocket model=m-50-200 connections=64 [seconds=4 warm=1 ramp=1 | turns=1]
 *          [host=127.0.0.1 path=/v1/responses key=KEY headers='a: b\r\n...'] [step=UPSTREAM'S PORT, for stepped-N]
 *
 * With seconds: says "begin" after the warm-up and "end" behind the measured window; only what comes within counts.
 * With turns: each connection makes that many, all count. The last line is the result, as JSON, times in milliseconds.
 *
 * A turn fails unless each of its events comes, in order, and its response ends as HTTP or WebSocket want it: a gateway
 * that merges or drops events must not look cheap. An event's latency is the time since the upstream sent it; that of
 * a first event is the time since the request. */
#include "wire.h"
#include "latencies.h"

#define FAILED_MAX 1000 /* nothing is measured that fails so often */

typedef enum { CONNECTING, SHAKING, HEAD, CHUNK_SIZE, CHUNK, CHUNK_END, BODY_END, UNTIL_CLOSED, FRAMES, DONE } State;

typedef struct {
    int fd;
    State state;
    bool is_waiting_to_write, has_first, is_kept;
    Buffer in, out, text; /* text: a body without its chunks, or a message without its frames */
    size_t chunk;         /* what is left of it */
    int next, turns;      /* the number of the event that must come next; turns that have begun */
    int64_t began;
} Client;

static struct {
    const char *host, *path, *key, *headers, *model;
    int port, connections, turns, step;
    bool is_websocket;
    double seconds, warm, ramp;
} is = {"127.0.0.1", "/v1/responses", "bench-key", "", "m-50-200", 0, 1, 0, 0, false, 4, 1, 1};

static Script script;
static int epoll_fd, asking, finished_clients;
static Client *clients;
static int64_t window_from, window_to = INT64_MAX;
static int64_t events, turns, failed;
static char why[256];
static Latencies of_event, of_first, of_turn;

static bool is_measured(int64_t at) { return at >= window_from && at < window_to; }

/* --- a turn's beginning and end ----------------------------------------------------------------------------------- */

static void connect_client(Client *client);

static void begin_turn(Client *client) {
    char body[1024], head[1024];
    int size = snprintf(body, sizeof body,
                        "{%s\"model\":\"%s\",\"store\":false,%s\"instructions\":\"You are a load client.\",\"input\":[{"
                        "\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\""
                        "Say something of a few hundred words about the shape of rivers.\"}]}],"
                        "\"reasoning\":{\"effort\":\"low\"},\"max_output_tokens\":4096}",
                        is.is_websocket ? "\"type\":\"response.create\"," : "", is.model,
                        is.is_websocket ? "" : "\"stream\":true,");
    client->next = 0, client->has_first = false, client->began = now_ns(), client->turns++;
    if (is.is_websocket) {
        append_frame(&client->out, TEXT, body, size, true);
        client->state = FRAMES;
        return;
    }
    int head_size = snprintf(head, sizeof head,
                             "POST %s HTTP/1.1\r\nhost: %s:%d\r\nauthorization: Bearer %s\r\n"
                             "accept: text/event-stream\r\naccept-encoding: identity\r\n"
                             "content-type: application/json\r\nuser-agent: OpenAI/Python 2.8.0\r\n"
                             "x-stainless-lang: python\r\nx-stainless-runtime: CPython\r\n%scontent-length: %d\r\n\r\n",
                             is.path, is.host, is.port, is.key, is.headers, size);
    append(&client->out, head, head_size);
    append(&client->out, body, size);
    client->state = HEAD;
}

/* The next turn, on the same connection if that may be. */
static void go_on(Client *client, bool is_kept) {
    bool is_done = is.turns && client->turns >= is.turns;
    if (is_kept && !is_done) {
        begin_turn(client);
        return;
    }
    close(client->fd);
    client->state = DONE;
    if (is_done) finished_clients++;
    else connect_client(client);
}

static void fail_turn(Client *client, const char *format, ...) {
    if (!*why) {
        va_list values;
        va_start(values, format);
        int size = snprintf(why, sizeof why, "turn %d, event %d: ", client->turns, client->next);
        vsnprintf(why + size, sizeof why - size, format, values);
        va_end(values);
    }
    if (++failed > FAILED_MAX) stop(why);
    go_on(client, false);
}

/* The response has ended as it must. */
static void end_turn(Client *client, bool is_kept) {
    if (client->next != events_of(&script)) {
        fail_turn(client, "the response ended before its last event");
        return;
    }
    int64_t now = now_ns();
    if (is_measured(now)) turns++, note(&of_turn, now - client->began);
    go_on(client, is_kept);
}

/* --- events ------------------------------------------------------------------------------------------------------- */

/* Whether this event's data is the one that must come next. */
static bool is_expected(Client *client, char *data, size_t size) {
    char type[96], number[32];
    int type_size = snprintf(type, sizeof type, "\"%s\"", type_of(&script, client->next));
    int number_size = snprintf(number, sizeof number, "%d", client->next);
    char *at = find(data, size, "\"type\""), *end = data + size, *sequence = find(data, size, "\"sequence_number\"");
    if (client->next >= events_of(&script) || !at || !sequence) return false;
    at += 6 + strspn(at + 6, ": "), sequence += 17 + strspn(sequence + 17, ": ");
    return at + type_size <= end && !memcmp(at, type, type_size) && sequence + number_size < end &&
           !memcmp(sequence, number, number_size) && (sequence[number_size] < '0' || sequence[number_size] > '9');
}

/* Tell a stepping upstream that this turn's next delta may come: from now on nothing of it is on its way. */
static void ask_for_next(const char *data, size_t size) {
    char *item = find(data, size, "\"item_id\"");
    int64_t turn = item ? strtoll(item + 9 + strcspn(item + 9, "_") + 5, NULL, 10) : 0;
    if (send(asking, &turn, sizeof turn, 0) < 0) stop("cannot ask the upstream");
}

static bool take_event(Client *client, char *data, size_t size, int64_t now) {
    if (size == 6 && !memcmp(data, "[DONE]", 6)) return true;
    if (!is_expected(client, data, size)) {
        fail_turn(client, "expected %s, not %.*s",
                  client->next < events_of(&script) ? type_of(&script, client->next) : "no more",
                  size < 120 ? (int)size : 120, data);
        return false;
    }
    if (is_measured(now)) {
        char *stamp = is_delta(&script, client->next) ? memchr(data, '@', size) : NULL;
        events++;
        if (stamp) note(&of_event, now - strtoll(stamp + 1, NULL, 10));
        if (!client->has_first) note(&of_first, now - client->began);
    }
    client->has_first = true;
    client->next++;
    if (script.rate < 0 && is_delta(&script, client->next)) ask_for_next(data, size);
    return true;
}

/* The whole blocks of `text`. Whether the turn goes on. */
static bool take_blocks(Client *client, int64_t now) {
    char *end;
    while ((end = find(start_of(&client->text), held(&client->text), "\n\n"))) {
        char *block = start_of(&client->text), *data = find(block, end - block, "data:");
        if (data) {
            data += 5 + (data[5] == ' ');
            if (!take_event(client, data, end - data, now)) return false;
        }
        take(&client->text, end + 2 - block);
    }
    return true;
}

/* --- HTTP --------------------------------------------------------------------------------------------------------- */
/* Each of these says whether something was taken, so that there may be more. */

static bool take_head(Client *client) {
    char *head = start_of(&client->in), *end = find(head, held(&client->in), "\r\n\r\n");
    if (!end) return false;
    *end = 0;
    if (strncmp(head, "HTTP/1.1 200", 12)) {
        *space_for(&client->in, 1) = 0; /* the text's end, to be shown */
        fail_turn(client, "answered %.40s", start_of(&client->in));
        return false;
    }
    client->is_kept = !strcasestr(head, "\nconnection: close");
    client->state = strcasestr(head, "\ntransfer-encoding: chunked") ? CHUNK_SIZE : UNTIL_CLOSED;
    take(&client->in, end + 4 - head);
    return true;
}

static bool take_chunk_size(Client *client) {
    char *line = start_of(&client->in), *end = find(line, held(&client->in), "\r\n"), *behind;
    if (!end) return false;
    client->chunk = strtoul(line, &behind, 16);
    if (behind == line) {
        fail_turn(client, "no size of a chunk: %.20s", line);
        return false;
    }
    take(&client->in, end + 2 - line);
    client->state = client->chunk ? CHUNK : BODY_END;
    return true;
}

static bool take_body(Client *client, int64_t now) {
    size_t size = held(&client->in);
    if (client->state == CHUNK && size > client->chunk) size = client->chunk;
    if (!size) return false;
    append(&client->text, start_of(&client->in), size);
    take(&client->in, size);
    if (client->state == CHUNK && !(client->chunk -= size)) client->state = CHUNK_END;
    return take_blocks(client, now);
}

/* Behind each chunk, and behind the last, which is empty and has no trailers here. */
static bool take_line_end(Client *client) {
    if (held(&client->in) < 2) return false;
    if (memcmp(start_of(&client->in), "\r\n", 2)) {
        fail_turn(client, "a chunk does not end where it says");
        return false;
    }
    take(&client->in, 2);
    if (client->state == BODY_END) end_turn(client, client->is_kept);
    else client->state = CHUNK_SIZE;
    return true;
}

/* --- WebSocket ---------------------------------------------------------------------------------------------------- */

static bool take_handshake(Client *client) {
    char *head = start_of(&client->in), *end = find(head, held(&client->in), "\r\n\r\n");
    if (!end) return false;
    if (strncmp(head, "HTTP/1.1 101", 12)) {
        fail_turn(client, "answered %.40s", head);
        return false;
    }
    take(&client->in, end + 4 - head);
    begin_turn(client);
    return true;
}

static bool take_frame(Client *client, int64_t now) {
    Frame frame;
    if (!next_frame(&client->in, &frame)) return false;
    if (frame.opcode == PING) append_frame(&client->out, PONG, frame.payload, frame.size, true);
    if (frame.opcode == CLOSE) {
        fail_turn(client, "closed with %d",
                  frame.size < 2 ? 0 : (uint8_t)frame.payload[0] << 8 | (uint8_t)frame.payload[1]);
        return false;
    }
    bool is_data = frame.opcode <= TEXT;
    if (is_data) append(&client->text, frame.payload, frame.size);
    take(&client->in, frame.whole);
    if (!is_data || !frame.is_last) return true;
    if (!take_event(client, start_of(&client->text), held(&client->text), now)) return false;
    take(&client->text, held(&client->text));
    if (client->next == events_of(&script)) end_turn(client, true);
    return true;
}

/* --- connections -------------------------------------------------------------------------------------------------- */

static bool take_some(Client *client, int64_t now) {
    switch (client->state) {
        case SHAKING: return take_handshake(client);
        case HEAD: return take_head(client);
        case CHUNK_SIZE: return take_chunk_size(client);
        case CHUNK:
        case UNTIL_CLOSED: return take_body(client, now);
        case CHUNK_END:
        case BODY_END: return take_line_end(client);
        case FRAMES: return take_frame(client, now);
        case CONNECTING:
        case DONE: return false;
    }
    return false;
}

static void connect_client(Client *client) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(is.port)};
    inet_pton(AF_INET, is.host, &address.sin_addr);
    if ((client->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) < 0) stop("no socket");
    without_delay(client->fd);
    release(&client->in), release(&client->out), release(&client->text);
    client->state = CONNECTING;
    if (connect(client->fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS)
        stop("cannot connect");
    watch(epoll_fd, EPOLL_CTL_ADD, client->fd, EPOLLIN | EPOLLOUT, client);
    client->is_waiting_to_write = true;
}

static void shake_hands(Client *client) {
    char head[1024];
    int size = snprintf(
        head, sizeof head,
        "GET %s HTTP/1.1\r\nhost: %s:%d\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\nauthorization: Bearer %s\r\n"
        "openai-beta: responses_websockets=2026-02-06\r\nuser-agent: OpenAI/Python 2.8.0\r\n%s\r\n",
        is.path, is.host, is.port, is.key, is.headers);
    append(&client->out, head, size);
    client->state = SHAKING;
}

static void write_out(Client *client) {
    if (!write_some(client->fd, &client->out)) {
        fail_turn(client, "cannot write: %s", strerror(errno));
        return;
    }
    bool is_waiting = held(&client->out) > 0;
    if (is_waiting != client->is_waiting_to_write)
        watch(epoll_fd, EPOLL_CTL_MOD, client->fd, EPOLLIN | (is_waiting ? EPOLLOUT : 0), client);
    client->is_waiting_to_write = is_waiting;
}

static void serve(Client *client, uint32_t ready) {
    if (client->state == CONNECTING) {
        if (ready & (EPOLLERR | EPOLLHUP)) stop("cannot connect");
        if (is.is_websocket) shake_hands(client);
        else begin_turn(client);
    } else if (ready & ~EPOLLOUT) {
        bool is_there = read_some(client->fd, &client->in);
        int64_t now = now_ns();
        while (take_some(client, now)) {}
        if (client->state == CONNECTING || client->state == DONE) return;
        if (!is_there) {
            if (client->state == UNTIL_CLOSED) end_turn(client, false);
            else fail_turn(client, "the connection ended");
            return;
        }
    }
    write_out(client);
}

static int connect_to_upstream(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(is.step)};
    int asking = socket(AF_INET, SOCK_DGRAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(asking, (struct sockaddr *)&address, sizeof address) < 0) stop("no such upstream");
    return asking;
}

/* --- the run ------------------------------------------------------------------------------------------------------ */

static void read_arguments(int count, char **arguments) {
    for (int i = 1; i < count; i++) {
        char *value = strchr(arguments[i], '=');
        if (!value) stop(arguments[i]);
        *value++ = 0;
        const char *name = arguments[i];
        if (!strcmp(name, "host")) is.host = value;
        else if (!strcmp(name, "path")) is.path = value;
        else if (!strcmp(name, "key")) is.key = value;
        else if (!strcmp(name, "headers")) is.headers = value;
        else if (!strcmp(name, "model")) is.model = value;
        else if (!strcmp(name, "port")) is.port = atoi(value);
        else if (!strcmp(name, "connections")) is.connections = atoi(value);
        else if (!strcmp(name, "step")) is.step = atoi(value);
        else if (!strcmp(name, "turns")) is.turns = atoi(value);
        else if (!strcmp(name, "door")) is.is_websocket = !strcmp(value, "websocket");
        else if (!strcmp(name, "seconds")) is.seconds = atof(value);
        else if (!strcmp(name, "warm")) is.warm = atof(value);
        else if (!strcmp(name, "ramp")) is.ramp = atof(value);
        else stop(name);
    }
    const char *model = strrchr(is.model, '/'); /* a peer may want "provider/model" */
    if (!script_of(model ? model + 1 : is.model, &script)) stop("no such model");
}

static void tell(const char *word) {
    printf("%s\n", word);
    fflush(stdout);
}

static void print_result(double seconds) {
    printf("{\"turns\":%lld,\"events\":%lld,\"failed\":%lld,\"seconds\":%.6f", (long long)turns, (long long)events,
           (long long)failed, seconds);
    print_latencies("event_ms", &of_event), print_latencies("first_ms", &of_first),
        print_latencies("turn_ms", &of_turn);
    for (char *at = why; *at; at++)
        if (*at < ' ' || *at == '"' || *at == '\\' || *at & 128) *at = '\'';
    printf(",\"why\":\"%s\"}\n", why);
}

int main(int count, char **arguments) {
    struct epoll_event ready[512];
    read_arguments(count, arguments);
    raise_descriptor_limit();
    epoll_fd = epoll_create1(0);
    if (is.step) asking = connect_to_upstream();
    clients = calloc(is.connections, sizeof *clients);
    int64_t began = now_ns(), ended;
    int started = 0;
    bool has_begun = false;
    if (!is.turns) {
        window_from = began + is.warm * SECOND;
        window_to = window_from + is.seconds * SECOND;
    }
    while ((ended = now_ns()) < window_to && (!is.turns || finished_clients < is.connections)) {
        for (; started < is.connections && ended >= began + is.ramp * SECOND * started / is.connections; started++)
            connect_client(&clients[started]);
        if (!is.turns && !has_begun && ended >= window_from) has_begun = true, tell("begin");
        int count_ready = epoll_wait(epoll_fd, ready, 512, started < is.connections ? 1 : 5);
        for (int i = 0; i < count_ready; i++) serve(ready[i].data.ptr, ready[i].events);
    }
    if (!is.turns) tell("end");
    print_result((ended - (is.turns ? began : window_from)) / 1e9);
    return 0;
}
