/* A scripted upstream of the Responses API, fast enough not to be what is measured: HTTP/1.1 with SSE, and WebSocket.
 *
 *     upstream PORT          listens on 127.0.0.1 (0: any port) and prints "listening PORT"
 *
 * The request's model names the script (wire.h): m-50-200, m-0-1, stepped-200, held-240, open-240. Each event is one
 * chunk or one frame, and a paced one leaves when it is due, alone; a stepped one when a datagram to the same port, of
 * eight bytes, names its turn's number. Any GET is answered with a list of models and how many turns run. */
#include "wire.h"
#include "sha1.h"

#define SLOTS 8192             /* of the timer wheel, a millisecond each: later dues go round */
#define TURNS_STEPPED_MAX 4096 /* at once */
#define PENDING_BYTES_MAX 262144
#define TEXT_OF_DELTA "lorem ips"

typedef struct Peer {
    int fd;
    bool is_websocket, is_waiting_to_write, is_running, is_leaving;
    Buffer in, out;
    Script script;
    char model[64];
    int next;    /* the number of the turn's next event */
    bool is_due; /* its time has come */
    int64_t due, turn;
    struct Peer *before, *after, **slot; /* its place in the timer wheel */
} Peer;

static int epoll_fd, running, timers, asked;
static Peer *wheel[SLOTS];
static int64_t fired_ms, turns;
static Peer *stepped[TURNS_STEPPED_MAX]; /* by the number of their turn */

/* --- timers ------------------------------------------------------------------------------------------------------- */

static void unschedule(Peer *peer) {
    if (!peer->slot) return;
    if (peer->before) peer->before->after = peer->after;
    else *peer->slot = peer->after;
    if (peer->after) peer->after->before = peer->before;
    peer->slot = NULL;
    timers--;
}

/* What is late already is due with the next tick. */
static void schedule(Peer *peer, int64_t due) {
    int64_t soonest = (fired_ms + 1) * 1000000;
    if (due < soonest) due = soonest;
    Peer **slot = &wheel[due / 1000000 % SLOTS];
    peer->due = due, peer->slot = slot, peer->before = NULL, peer->after = *slot;
    if (*slot) (*slot)->before = peer;
    *slot = peer;
    timers++;
}

/* --- events ------------------------------------------------------------------------------------------------------- */

static char payload[1 << 22];
static size_t payload_size;

/* More of the payload: JSON, in which ' stands for ". */
static void say(const char *format, ...) {
    va_list values;
    size_t from = payload_size;
    va_start(values, format);
    payload_size += vsnprintf(payload + from, sizeof payload - from, format, values);
    va_end(values);
    if (payload_size >= sizeof payload) stop("an event is too long");
    for (char *at = payload + from; (at = strchr(at, '\''));) *at++ = '"';
}

static void say_text(const Peer *peer) {
    for (int i = 0; i < peer->script.deltas; i++) say(TEXT_OF_DELTA);
}

static void say_item(const Peer *peer, bool is_done) {
    say("{'id':'msg_0048%012lld','type':'message','status':'%s','content':[", (long long)peer->turn,
        is_done ? "completed" : "in_progress");
    if (is_done) {
        say("{'type':'output_text','annotations':[],'logprobs':[],'text':'");
        say_text(peer);
        say("'}");
    }
    say("],'role':'assistant'}");
}

static void say_response(const Peer *peer, bool is_done) {
    say("{'id':'resp_0048%012lld','object':'response','created_at':1782321684,'status':'%s','background':false,"
        "'error':null,'incomplete_details':null,'instructions':null,'max_output_tokens':null,'max_tool_calls':null,"
        "'model':'%s','output':[",
        (long long)peer->turn, is_done ? "completed" : "in_progress", peer->model);
    if (is_done) say_item(peer, true);
    say("],'parallel_tool_calls':true,'previous_response_id':null,'prompt_cache_key':null,"
        "'reasoning':{'effort':null,'summary':null},'safety_identifier':null,'service_tier':'default','store':false,"
        "'temperature':1.0,'text':{'format':{'type':'text'},'verbosity':'medium'},'tool_choice':'auto','tools':[],"
        "'top_logprobs':0,'top_p':1.0,'truncation':'disabled','usage':");
    if (is_done)
        say("{'input_tokens':36,'input_tokens_details':{'cached_tokens':0},'output_tokens':%d,"
            "'output_tokens_details':{'reasoning_tokens':0},'total_tokens':%d}",
            peer->script.deltas, peer->script.deltas + 36);
    else say("null");
    say(",'user':null,'metadata':{}}");
}

/* What lies in a delta, the part that is added or done, the text that is done. */
static void say_content(const Peer *peer, int tail) {
    say("'item_id':'msg_0048%012lld','output_index':0,'content_index':0,", (long long)peer->turn);
    if (is_delta(&peer->script, peer->next)) {
        say("'delta':'" TEXT_OF_DELTA "@%lld@','logprobs':[],'obfuscation':'Xk2J9qPzT4mWcE'", (long long)now_ns());
        return;
    }
    bool is_part = tail != 0;
    say(is_part ? "'part':{'type':'output_text','annotations':[],'text':'" : "'logprobs':[],'text':'");
    if (tail >= 0) say_text(peer);
    say(is_part ? "'}" : "'");
}

/* The data of the turn's next event. */
static void make_payload(const Peer *peer) {
    int tail = peer->next - EVENTS_BEFORE_DELTAS - peer->script.deltas; /* 0 is the first event behind the deltas */
    payload_size = 0;
    say("{'type':'%s',", type_of(&peer->script, peer->next));
    if (peer->next < 2 || tail == 3) say("'response':"), say_response(peer, tail == 3);
    else if (peer->next == 2 || tail == 2) say("'output_index':0,'item':"), say_item(peer, tail == 2);
    else say_content(peer, tail);
    say(",'sequence_number':%d}", peer->next);
}

static void append_event(Peer *peer) {
    const char *type = type_of(&peer->script, peer->next);
    make_payload(peer);
    peer->next++;
    if (peer->is_websocket) {
        append_frame(&peer->out, TEXT, payload, payload_size, false);
        return;
    }
    char head[128], chunk[16];
    int head_size = snprintf(head, sizeof head, "event: %s\ndata: ", type);
    append(&peer->out, chunk, snprintf(chunk, sizeof chunk, "%zx\r\n", head_size + payload_size + 2));
    append(&peer->out, head, head_size);
    append(&peer->out, payload, payload_size);
    append(&peer->out, "\n\n\r\n", 4);
}

static void end_turn(Peer *peer) {
    if (!peer->is_websocket) append(&peer->out, "0\r\n\r\n", 5);
    peer->is_running = false;
    running--;
}

/* Append what is due, up to the next pause, due time or full buffer. Whether there was any. */
static bool advance(Peer *peer) {
    Script *script = &peer->script;
    bool was_due = false;
    while (peer->is_running && !peer->slot && held(&peer->out) < PENDING_BYTES_MAX) {
        if (peer->next == events_of(script)) end_turn(peer);
        else if (peer->next == script->pause_at) {
            script->pause_at = -1;
            schedule(peer, now_ns() + script->pause);
        } else if (script->rate && is_delta(script, peer->next) && !peer->is_due) {
            if (script->rate < 0) break;
            schedule(peer, peer->due + SECOND / script->rate); /* what was late is not made up for by a burst */
            continue;
        } else {
            append_event(peer);
            peer->is_due = false;
        }
        was_due = true;
    }
    return was_due;
}

static void begin_turn(Peer *peer, const char *body, size_t size) {
    char *at = find(body, size, "\"model\"");
    char model[64] = "";
    if (at) sscanf(at + 7, " : \"%63[^\"]\"", model);
    if (!script_of(model, &peer->script) || peer->is_running) {
        const char *event = "{\"type\":\"error\",\"status\":404,\"error\":{\"code\":\"no_such_script\"}}";
        const char *answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        if (peer->is_websocket) append_frame(&peer->out, TEXT, event, strlen(event), false);
        else append(&peer->out, answer, strlen(answer));
        return;
    }
    strcpy(peer->model, model);
    peer->next = 0, peer->due = now_ns(), peer->is_running = true;
    peer->turn = ++turns, peer->is_due = false;
    running++;
    stepped[peer->turn % TURNS_STEPPED_MAX] = peer;
    if (!peer->is_websocket) {
        const char *head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            "transfer-encoding: chunked\r\nx-request-id: req_0048\r\nopenai-processing-ms: 41\r\n\r\n";
        append(&peer->out, head, strlen(head));
    }
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static void accept_websocket(Peer *peer, const char *key) {
    static const char *const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[128], answer[29] = "", head[256];
    unsigned char digest[21] = {0};
    int size = snprintf(text, sizeof text, "%.24s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    sha1((unsigned char *)text, size, digest);
    for (int i = 0; i < 28; i++) {
        int bit = i * 6, pair = digest[bit / 8] << 8 | digest[bit / 8 + 1];
        answer[i] = i == 27 ? '=' : alphabet[pair >> (10 - bit % 8) & 63];
    }
    append(&peer->out, head,
           snprintf(head, sizeof head,
                    "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n"
                    "connection: Upgrade\r\nsec-websocket-accept: %s\r\n\r\n",
                    answer));
    peer->is_websocket = true;
}

static void answer_get(Peer *peer) {
    char body[512], head[128];
    int size = snprintf(body, sizeof body,
                        "{\"object\":\"list\",\"status\":\"ok\",\"running\":%d,\"turns\":%lld,\"data\":["
                        "{\"id\":\"m-50-200\",\"object\":\"model\",\"created\":0,\"owned_by\":\"lab\"},"
                        "{\"id\":\"m-0-200\",\"object\":\"model\",\"created\":0,\"owned_by\":\"lab\"},"
                        "{\"id\":\"m-0-1\",\"object\":\"model\",\"created\":0,\"owned_by\":\"lab\"}]}",
                        running, (long long)turns);
    append(&peer->out, head,
           snprintf(head, sizeof head,
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                    "content-length: %d\r\n\r\n",
                    size));
    append(&peer->out, body, size);
}

static char *header(const char *head, size_t size, const char *name) {
    for (const char *line = head; (line = find(line, head + size - line, "\r\n"));) {
        line += 2;
        if (!strncasecmp(line, name, strlen(name)) && line[strlen(name)] == ':')
            return (char *)line + strlen(name) + 1 + strspn(line + strlen(name) + 1, " ");
    }
    return NULL;
}

/* How many bytes the request's body has; SIZE_MAX: not all are here yet. A chunked one is searched as it came. */
static size_t body_size(const char *head, size_t head_size, size_t have) {
    char *length = header(head, head_size, "content-length");
    if (length) {
        size_t size = strtoull(length, NULL, 10);
        return have < size ? SIZE_MAX : size;
    }
    if (!header(head, head_size, "transfer-encoding")) return 0;
    char *end = find(head + head_size, have, "0\r\n\r\n");
    return end ? (size_t)(end + 5 - head) - head_size : SIZE_MAX;
}

/* Whether there was a whole request. */
static bool take_request(Peer *peer) {
    char *head = start_of(&peer->in), *end = find(head, held(&peer->in), "\r\n\r\n");
    if (!end) return false;
    size_t head_size = end + 4 - head, size = body_size(head, head_size, held(&peer->in) - head_size);
    if (size == SIZE_MAX) return false;
    char *key = header(head, head_size, "sec-websocket-key");
    if (key) accept_websocket(peer, key);
    else if (!strncmp(head, "GET ", 4)) answer_get(peer);
    else begin_turn(peer, head + head_size, size);
    take(&peer->in, head_size + size);
    return true;
}

/* Whether there was a whole frame. */
static bool take_frame(Peer *peer) {
    Frame frame;
    if (!next_frame(&peer->in, &frame)) return false;
    if (frame.opcode == TEXT) begin_turn(peer, frame.payload, frame.size);
    if (frame.opcode == PING) append_frame(&peer->out, PONG, frame.payload, frame.size, false);
    if (frame.opcode == CLOSE) {
        append_frame(&peer->out, CLOSE, frame.payload, frame.size, false);
        peer->is_leaving = true; /* a server closes first (RFC 6455, 7.1.1) */
    }
    take(&peer->in, frame.whole);
    return true;
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

static void leave(Peer *peer) {
    unschedule(peer);
    running -= peer->is_running;
    if (stepped[peer->turn % TURNS_STEPPED_MAX] == peer) stepped[peer->turn % TURNS_STEPPED_MAX] = NULL;
    close(peer->fd);
    release(&peer->in), release(&peer->out);
    free(peer);
}

/* Write what there is and make what fits behind it. The peer is gone after this if it left. */
static void move(Peer *peer) {
    bool may_go_on = true;
    while (may_go_on) {
        may_go_on = advance(peer);
        if (!write_some(peer->fd, &peer->out)) {
            leave(peer);
            return;
        }
        may_go_on = may_go_on && !held(&peer->out);
    }
    if (peer->is_leaving && !held(&peer->out)) {
        leave(peer);
        return;
    }
    bool is_waiting = held(&peer->out) > 0;
    if (is_waiting != peer->is_waiting_to_write)
        watch(epoll_fd, EPOLL_CTL_MOD, peer->fd, EPOLLIN | (is_waiting ? EPOLLOUT : 0), peer);
    peer->is_waiting_to_write = is_waiting;
}

static void serve(Peer *peer, uint32_t events) {
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        if (!read_some(peer->fd, &peer->in)) {
            leave(peer);
            return;
        }
        /* a second request waits for the end of the first: nobody pipelines here */
        while (!peer->is_running && (peer->is_websocket ? take_frame(peer) : take_request(peer))) {}
        while (peer->is_running && peer->is_websocket && take_frame(peer)) {}
    }
    move(peer);
}

static void fire(int64_t now_ms) {
    for (; fired_ms < now_ms;) {
        fired_ms++;
        for (Peer *peer = wheel[fired_ms % SLOTS], *after; peer; peer = after) {
            after = peer->after;
            if (peer->due / 1000000 > fired_ms) continue;
            unschedule(peer);
            peer->is_due = true;
            move(peer);
        }
    }
}

/* Datagrams with the numbers of turns whose next delta is wanted. */
static void step(void) {
    for (int64_t turn; recv(asked, &turn, sizeof turn, MSG_DONTWAIT) == sizeof turn;) {
        Peer *peer = stepped[(uint64_t)turn % TURNS_STEPPED_MAX];
        if (!peer || peer->turn != turn) continue;
        peer->is_due = true;
        move(peer);
    }
}

static void welcome(int listener) {
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
        Peer *peer = calloc(1, sizeof *peer);
        peer->fd = fd;
        without_delay(fd);
        watch(epoll_fd, EPOLL_CTL_ADD, fd, EPOLLIN, peer);
    }
}

static int listen_at(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, 4096) < 0) stop("cannot listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("listening %d\n", ntohs(address.sin_port));
    fflush(stdout);
    asked = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(asked, (struct sockaddr *)&address, size) < 0) stop("cannot be asked");
    return listener;
}

int main(int count, char **arguments) {
    struct epoll_event events[512];
    raise_descriptor_limit();
    epoll_fd = epoll_create1(0);
    int listener = listen_at(count > 1 ? atoi(arguments[1]) : 0);
    watch(epoll_fd, EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
    watch(epoll_fd, EPOLL_CTL_ADD, asked, EPOLLIN, &asked);
    fired_ms = now_ns() / 1000000;
    for (;;) {
        bool is_asked = false;
        int ready = epoll_wait(epoll_fd, events, 512, timers ? 1 : -1);
        if (!timers) fired_ms = now_ns() / 1000000;
        for (int i = 0; i < ready; i++)
            if (events[i].data.ptr == &asked) is_asked = true;
            else if (events[i].data.ptr) serve(events[i].data.ptr, events[i].events);
            else welcome(listener);
        if (is_asked) step(); /* may end peers: behind the events that name them */
        fire(now_ns() / 1000000);
    }
}
