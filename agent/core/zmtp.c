/* zmtp.c - frames and the handshake of ZMTP 3.0 (ZeroMQ RFC 23).
 *
 *     frame = flags, size (1 byte, or 8 big-endian with LONG), body
 *     flags = MORE (another part follows), LONG, COMMAND
 *
 * Written here rather than linked: of libzmq an agent would use one socket type and one mechanism, and a
 * library with threads of its own would have to be joined with the loop
 * (docs/decisions/0022-an-agent-translates-other-engines.md). The greeting names version 3.0, so that a
 * newer peer keeps to its rules: a subscription is a message, not a command.
 */
#include "agent/core/zmtp.h"

#define GREETING_BYTES 64
#define VERSION_AT 10
#define MECHANISM_AT 12
#define MECHANISM_BYTES 20
#define FLAG_MORE 1
#define FLAG_LONG 2
#define FLAG_COMMAND 4
#define SHORT_MAX 255
#define PONG_CONTEXT_MAX 16 /* bytes of a PING that its PONG repeats */

/* ---- writing ---- */

static void put_number(struct buf *out, uint64_t value, int bytes)
{
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
        buf_byte(out, (char)(value >> shift));
}

/* Begins a frame; the caller appends `len` bytes. */
static void put_head(struct buf *out, unsigned flags, size_t len)
{
    bool is_long = len > SHORT_MAX;
    buf_byte(out, (char)(flags | (is_long ? FLAG_LONG : 0u)));
    put_number(out, len, is_long ? 8 : 1);
}

int zmtp_put(struct buf *out, const struct str *part, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        put_head(out, i + 1 < count ? FLAG_MORE : 0, part[i].len);
        buf_str(out, part[i]);
    }
    return out->rc;
}

void zmtp_begin(struct zmtp *z, enum zmtp_role role, struct buf *out)
{
    char greeting[GREETING_BYTES] = { 0 };
    *z = (struct zmtp){ .role = role };
    greeting[0] = (char)0xff;
    greeting[9] = 0x7f;
    greeting[VERSION_AT] = 3;
    memcpy(greeting + MECHANISM_AT, "NULL", 4);
    buf_append(out, greeting, sizeof greeting);
}

/* A command has its name behind one byte of length; READY has properties: a name likewise, and a value
 * behind four bytes of length. */
static void put_ready(const struct zmtp *z, struct buf *out)
{
    struct str name = STR("Socket-Type");
    struct str type = z->role == ZMTP_SUB ? STR("SUB") : STR("DEALER");
    put_head(out, FLAG_COMMAND, 6 + 1 + name.len + 4 + type.len);
    buf_text(out, "\5READY");
    put_number(out, name.len, 1);
    buf_str(out, name);
    put_number(out, type.len, 4);
    buf_str(out, type);
}

static void put_subscription(struct buf *out, struct str topic)
{
    put_head(out, 0, 1 + topic.len);
    buf_byte(out, 1);
    buf_str(out, topic);
}

/* Answers a PING, whose first two bytes say how long it waits, with the rest of it. */
static void put_pong(struct str ping, struct buf *out)
{
    if (ping.len < 2 || ping.len > 2 + PONG_CONTEXT_MAX) return;
    put_head(out, FLAG_COMMAND, 5 + ping.len - 2);
    buf_text(out, "\4PONG");
    buf_append(out, ping.data + 2, ping.len - 2);
}

/* ---- reading ---- */

struct frame {
    unsigned flags;
    struct str body;
};

/* Cuts one frame at *pos. 1: it is whole; 0: more must come; -EPROTO. */
static int cut_frame(struct str in, size_t *pos, struct frame *ret, struct err *err)
{
    const unsigned char *at = (const unsigned char *)in.data + *pos;
    size_t have = in.len - *pos;
    if (have < 2) return 0;
    unsigned flags = at[0];
    if (flags & ~(unsigned)(FLAG_MORE | FLAG_LONG | FLAG_COMMAND))
        return err_set(err, -EPROTO, "a frame with unknown flags 0x%02x", flags);
    size_t head = flags & FLAG_LONG ? 9 : 2;
    if (have < head) return 0;
    uint64_t size = 0;
    for (size_t i = 1; i < head; i++)
        size = size << 8 | at[i];
    if (size > ZMTP_FRAME_BYTES_MAX)
        return err_set(err, -EPROTO, "a frame of more than %zu bytes", ZMTP_FRAME_BYTES_MAX);
    if (have - head < size) return 0;
    *ret = (struct frame){ flags, str_of(at + head, (size_t)size) };
    *pos += head + (size_t)size;
    return 1;
}

static int check_greeting(struct str in, struct err *err)
{
    const unsigned char *at = (const unsigned char *)in.data;
    if (at[0] != 0xff || !(at[9] & 1)) return err_set(err, -EPROTO, "the peer does not speak ZMTP");
    if (at[VERSION_AT] < 3)
        return err_set(err, -EPROTO, "the peer speaks ZMTP %u; want 3", at[VERSION_AT]);
    char null[MECHANISM_BYTES] = "NULL";
    if (memcmp(in.data + MECHANISM_AT, null, sizeof null) != 0)
        return err_set(err, -EPROTO, "the peer asks for authentication; want the mechanism NULL");
    return 0;
}

/* Cuts one property; false at the end or where it is malformed. */
static bool cut_property(struct str *rest, struct str *ret_name, struct str *ret_value)
{
    const unsigned char *at = (const unsigned char *)rest->data;
    if (rest->len < 1 || rest->len - 1 < (size_t)at[0] + 4) return false;
    size_t name = at[0];
    const unsigned char *size = at + 1 + name;
    uint64_t value =
        (uint64_t)size[0] << 24 | (uint64_t)size[1] << 16 | (uint64_t)size[2] << 8 | size[3];
    if (rest->len - 5 - name < value) return false;
    *ret_name = str_of(at + 1, name);
    *ret_value = str_of(size + 4, (size_t)value);
    *rest = str_of(size + 4 + value, rest->len - 5 - name - (size_t)value);
    return true;
}

static int check_ready(const struct zmtp *z, struct str properties, struct err *err)
{
    struct str name, value, type = { 0 };
    while (cut_property(&properties, &name, &value))
        if (str_eq_nocase(name, STR("Socket-Type"))) type = value;
    bool fits = z->role == ZMTP_SUB ? str_eq(type, STR("PUB")) || str_eq(type, STR("XPUB"))
                                    : str_eq(type, STR("ROUTER"));
    if (properties.len == 0 && fits) return 0;
    return err_set(err, -EPROTO, "the peer's socket is no %s",
                   z->role == ZMTP_SUB ? "PUB" : "ROUTER");
}

/* Returns true and cuts the command's name off if the command is `name`. */
static bool is_command(struct str *body, struct str name)
{
    if (body->len < 1 + name.len || (unsigned char)body->data[0] != name.len) return false;
    if (memcmp(body->data + 1, name.data, name.len) != 0) return false;
    *body = str_of(body->data + 1 + name.len, body->len - 1 - name.len);
    return true;
}

static int take_command(struct zmtp *z, struct str body, struct str topic, struct buf *out,
                        struct err *err)
{
    if (is_command(&body, STR("ERROR")))
        return err_set(err, -EPROTO, "the peer refuses the connection");
    if (is_command(&body, STR("PING"))) put_pong(body, out);
    if (z->state != ZMTP_HANDSHAKE || !is_command(&body, STR("READY"))) return 0;
    int rc = check_ready(z, body, err);
    if (rc < 0) return rc;
    z->state = ZMTP_OPEN;
    if (z->role == ZMTP_SUB) put_subscription(out, topic);
    return 0;
}

/* Takes the parts of one message. Commands stand only between messages. */
static int take_frames(struct zmtp *z, struct str in, struct str topic, size_t *ret_used,
                       struct zmtp_message *ret, struct buf *out, struct err *err)
{
    struct zmtp_message m = { 0 };
    size_t pos = *ret_used;
    struct frame f = { 0 };
    int rc;
    while ((rc = cut_frame(in, &pos, &f, err)) > 0) {
        if (f.flags & FLAG_COMMAND) {
            if (m.part_count > 0 || f.flags & FLAG_MORE)
                return err_set(err, -EPROTO, "a command within a message");
            rc = take_command(z, f.body, topic, out, err);
            if (rc < 0) return rc;
            *ret_used = pos;
            continue;
        }
        if (z->state != ZMTP_OPEN) return err_set(err, -EPROTO, "a message before READY");
        if (m.part_count == ZMTP_PARTS_MAX)
            return err_set(err, -EPROTO, "a message of more than %d parts", ZMTP_PARTS_MAX);
        m.part[m.part_count++] = f.body;
        if (f.flags & FLAG_MORE) continue;
        *ret_used = pos;
        *ret = m;
        return 1;
    }
    return rc;
}

int zmtp_take(struct zmtp *z, struct str in, struct str topic, size_t *ret_used,
              struct zmtp_message *ret, struct buf *out, struct err *err)
{
    *ret_used = 0;
    if (z->state == ZMTP_GREETING) {
        if (in.len < GREETING_BYTES) return 0;
        int rc = check_greeting(in, err);
        if (rc < 0) return rc;
        z->state = ZMTP_HANDSHAKE;
        put_ready(z, out);
        *ret_used = GREETING_BYTES;
    }
    int rc = take_frames(z, in, topic, ret_used, ret, out, err);
    return rc == 0 && out->rc < 0 ? err_set(err, out->rc, "no memory to answer") : rc;
}
