/* parser.c - one automaton over the bytes of an output, steered by the rows of its dialects.
 *
 *                       ┌────────── think.end ──────────┐
 *     content ──think.begin──► thinking ────────────────┘
 *        │ ▲
 *        │ └── anything else, calls_end ──┐
 *        ├── calls_begin, a bare call ──► section ──call_begin, {, a name──┐
 *        └── call_begin ──────────────────────────────────────────────────►│
 *                                                                          ▼
 *     section or content ◄──call_end── after ◄── body ◄── name, mark   or   head (JSON)
 *
 * A byte that does not fit ends the call, and is read again as content. Marks are met in `held`, which is always
 * the beginning of one; when it no longer is, its longest mark counts, or its first byte is text, and the rest is
 * read again. So an output cut anywhere has the same events. */
#include "base/text/dialogue/parser.h"

#include "base/core/bits.h"

enum state {
    AT_CONTENT,
    AT_THINKING,
    AT_SECTION,
    AT_HEAD, /* of a call in JSON */
    AT_NAME,
    AT_NAME_END,
    AT_BODY,
    AT_AFTER,
};

enum json_state {
    JSON_BEFORE,
    JSON_FIRST_KEY,
    JSON_NEXT_KEY,
    JSON_IN_KEY,
    JSON_COLON,
    JSON_VALUE,
    JSON_IN_NAME,
    JSON_IN_ARGUMENTS,
    JSON_IN_OTHER,
    JSON_AFTER,
};

enum { KEY_OTHER, KEY_NAME, KEY_ARGUMENTS };

enum { LEAD_NONE, LEAD_KEEP, LEAD_DROP };

static void step(struct dialogue_parser *p, char c);

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

/* ---- events ---- */

static void tell_run(struct dialogue_parser *p)
{
    if (p->run.rc < 0 && p->rc == 0) p->rc = p->run.rc;
    if (p->run.len == 0 || p->rc < 0) return;
    const struct dialogue_event e = {
        .part = p->run_part,
        .index = p->calls > 0 ? p->calls - 1 : 0,
        .text = buf_view(&p->run),
    };
    p->setup.event(p->setup.arg, &e);
    buf_clear(&p->run);
}

/* Returns the buffer for text of a kind. */
static struct buf *run_of(struct dialogue_parser *p, enum dialogue_part part)
{
    if (p->run_part != part) tell_run(p);
    p->run_part = part;
    return &p->run;
}

static void tell(struct dialogue_parser *p, enum dialogue_part part, struct str text, bool cut)
{
    tell_run(p);
    if (p->rc < 0) return;
    const struct dialogue_event e = {
        .part = part, .index = p->calls - 1, .text = text, .cut = cut
    };
    p->setup.event(p->setup.arg, &e);
}

/* ---- calls ---- */

static const struct call_dialect *call_of(const struct dialogue_parser *p)
{
    return p->setup.tool_count > 0 ? p->setup.dialects.call : NULL;
}

/* Returns the row of a call at hand; there is one, or no call would have begun. */
static const struct call_dialect *row_of(const struct dialogue_parser *p)
{
    must(p->setup.dialects.call);
    return p->setup.dialects.call;
}

static void call_begins(struct dialogue_parser *p)
{
    const struct call_dialect *d = row_of(p);
    p->told = p->has_name = p->has_args = p->other_key = false;
    p->name_len = 0;
    p->json = JSON_BEFORE;
    p->value = (struct arguments){ 0 };
    buf_clear(&p->early);
    p->state = d->shape == CALL_JSON ? AT_HEAD : AT_NAME;
}

/* Leaves the call or section at hand: what was held of it is content, or the call is cut. */
static void break_off(struct dialogue_parser *p)
{
    if (p->told) {
        tell(p, DIALOGUE_CALL_END, (struct str){ 0 }, !p->has_args);
        p->lead = LEAD_KEEP;
    } else if (p->raw.len + p->held.len > 0) {
        struct buf *out = run_of(p, DIALOGUE_CONTENT);
        buf_str(out, buf_view(&p->raw));
        buf_str(out, buf_view(&p->held));
        p->lead = LEAD_NONE;
        p->fresh = false;
    }
    p->told = p->in_section = false;
    p->state = AT_CONTENT;
    buf_clear(&p->raw);
    buf_clear(&p->held);
}

static void break_at(struct dialogue_parser *p, char c)
{
    break_off(p);
    step(p, c);
}

/* Tells the call by its name; false: no tool has it, or there are too many calls. */
static bool tell_name(struct dialogue_parser *p)
{
    struct str name = str_of(p->name, p->name_len);
    bool known = false;
    for (uint32_t i = 0; i < p->setup.tool_count && !known; i++)
        known = str_eq(name, p->setup.tool[i]);
    if (!known || p->calls == DIALOGUE_CALLS_MAX) return false;
    tell_run(p); /* of the call before */
    p->calls++;
    p->told = true;
    p->no_call = p->fresh = false;
    buf_clear(&p->raw);
    buf_clear(&p->space);
    tell(p, DIALOGUE_CALL, name, false);
    return true;
}

/* The arguments are whole; the call's text may go on. */
static void call_ends(struct dialogue_parser *p)
{
    const struct call_dialect *d = row_of(p);
    tell(p, DIALOGUE_CALL_END, (struct str){ 0 }, false);
    p->told = false;
    buf_clear(&p->raw);
    p->lead = LEAD_KEEP;
    p->state = d->call_end ? AT_AFTER : p->in_section ? AT_SECTION : AT_CONTENT;
}

/* Keeps a byte of a call that is not told. */
static void keep(struct dialogue_parser *p, char c)
{
    if (!p->told) buf_byte(&p->raw, c);
    if (p->raw.len > DIALOGUE_HEAD_BYTES_MAX) break_off(p);
}

/* ---- a call in JSON ---- */

static void json_key(struct dialogue_parser *p, char c)
{
    if (c != '"') {
        if (p->key_len < sizeof p->key_text) p->key_text[p->key_len++] = c;
        keep(p, c);
        return;
    }
    struct str key = str_of(p->key_text, p->key_len);
    bool arguments = str_eq(key, STR("arguments")) || str_eq(key, STR("parameters"));
    p->key = str_eq(key, STR("name")) ? KEY_NAME : arguments ? KEY_ARGUMENTS : KEY_OTHER;
    bool first = !p->has_name && !p->has_args && !p->other_key;
    bool foreign = p->key == KEY_ARGUMENTS || (p->key == KEY_OTHER && !str_eq(key, STR("type")));
    if (p->is_bare && first && foreign) {
        break_at(p, c); /* an object that is the answer */
        return;
    }
    p->other_key |= p->key == KEY_OTHER;
    p->json = JSON_COLON;
    keep(p, c);
}

static void json_value(struct dialogue_parser *p, char c)
{
    p->value = (struct arguments){ 0 };
    if (p->key == KEY_NAME && c == '"' && !p->has_name) {
        p->json = JSON_IN_NAME;
        keep(p, c);
        return;
    }
    if (p->key == KEY_NAME || (p->key == KEY_ARGUMENTS && (c != '{' || p->has_args))) {
        break_at(p, c);
        return;
    }
    if (p->key == KEY_ARGUMENTS && p->has_name && !tell_name(p)) {
        break_at(p, c);
        return;
    }
    p->json = p->key == KEY_ARGUMENTS ? JSON_IN_ARGUMENTS : JSON_IN_OTHER;
    step(p, c);
}

/* Goes on in the arguments or in a value that does not matter. */
static void json_inside(struct dialogue_parser *p, char c)
{
    bool arguments = p->json == JSON_IN_ARGUMENTS;
    struct buf skipped = { .data = NULL };
    struct buf *out = arguments && p->told ? run_of(p, DIALOGUE_ARGUMENTS)
                      : arguments          ? &p->early
                                           : &skipped;
    enum arguments_step did = arguments_json(&p->value, c, out);
    buf_fini(&skipped);
    if (did == ARGUMENTS_WRONG) {
        break_at(p, c);
        return;
    }
    if (did != ARGUMENTS_MORE) {
        p->has_args |= arguments;
        p->json = JSON_AFTER;
    }
    if (did == ARGUMENTS_BEFORE)
        step(p, c);
    else
        keep(p, c);
}

/* The object has ended: a call whose arguments were not told yet is told now. */
static void json_ends(struct dialogue_parser *p, char c)
{
    if (!p->told && (!p->has_name || !tell_name(p))) {
        break_at(p, c);
        return;
    }
    if (!p->has_args) buf_text(run_of(p, DIALOGUE_ARGUMENTS), "{}");
    if (p->early.len > 0) buf_str(run_of(p, DIALOGUE_ARGUMENTS), buf_view(&p->early));
    buf_clear(&p->early);
    call_ends(p);
}

static void at_head(struct dialogue_parser *p, char c)
{
    bool between = p->json != JSON_IN_KEY && p->json != JSON_IN_NAME &&
                   p->json != JSON_IN_ARGUMENTS && p->json != JSON_IN_OTHER;
    if (between && is_space(c)) {
        keep(p, c);
        return;
    }
    enum json_state next = (enum json_state)p->json;
    switch ((enum json_state)p->json) {
    case JSON_BEFORE:
        if (c == '{') next = JSON_FIRST_KEY;
        break;
    case JSON_FIRST_KEY:
    case JSON_NEXT_KEY:
        p->key_len = 0;
        if (c == '"') next = JSON_IN_KEY;
        break;
    case JSON_IN_KEY:
        json_key(p, c);
        return;
    case JSON_COLON:
        if (c == ':') next = JSON_VALUE;
        break;
    case JSON_VALUE:
        json_value(p, c);
        return;
    case JSON_IN_NAME:
        if (c == '"' && p->name_len > 0) {
            p->has_name = true;
            next = JSON_AFTER;
        } else if (is_name_char(c) && p->name_len < sizeof p->name) {
            p->name[p->name_len++] = c;
            keep(p, c);
            return;
        }
        break;
    case JSON_IN_ARGUMENTS:
    case JSON_IN_OTHER:
        json_inside(p, c);
        return;
    case JSON_AFTER:
        if (c == ',') next = JSON_NEXT_KEY;
        if (c == '}') {
            json_ends(p, c);
            return;
        }
        break;
    }
    if (next == (enum json_state)p->json) {
        break_at(p, c);
        return;
    }
    p->json = (uint8_t)next;
    keep(p, c);
}

/* ---- a call by its name ---- */

static void at_name(struct dialogue_parser *p, char c)
{
    bool python = row_of(p)->shape == CALL_PYTHON;
    if (is_name_char(c) && p->name_len < sizeof p->name) {
        p->name[p->name_len++] = c;
        keep(p, c);
    } else if (p->name_len > 0 && python && c == '(' && tell_name(p)) {
        p->state = AT_BODY;
    } else if (p->name_len > 0 && !python && !is_name_char(c)) {
        p->state = AT_NAME_END;
        step(p, c);
    } else {
        break_at(p, c);
    }
}

/* Passes over what stands between a name and its arguments, up to the mark. Some models leave the mark out. */
static void at_name_end(struct dialogue_parser *p, char c)
{
    struct str mark = dialect_mark(row_of(p)->name_end);
    bool blank = true;
    for (size_t i = 0; i < p->held.len; i++)
        blank = blank && is_space(p->held.data[i]);
    if (c == '{' && blank) {
        p->state = AT_BODY;
    } else if (p->held.len == DIALOGUE_MARK_BYTES_MAX) {
        break_at(p, c);
        return;
    } else {
        buf_byte(&p->held, c);
        if (!str_ends(buf_view(&p->held), mark)) return;
        p->state = AT_BODY;
    }
    buf_str(&p->raw, buf_view(&p->held));
    buf_clear(&p->held);
    if (c == '{') step(p, c);
}

static void at_body(struct dialogue_parser *p, char c)
{
    bool python = row_of(p)->shape == CALL_PYTHON;
    if (!p->told) {
        if (is_space(c)) {
            keep(p, c);
            return;
        }
        if (c != '{' || !tell_name(p)) {
            break_at(p, c);
            return;
        }
    }
    struct buf *out = run_of(p, DIALOGUE_ARGUMENTS);
    enum arguments_step did =
        python ? arguments_python(&p->value, c, out) : arguments_json(&p->value, c, out);
    if (did == ARGUMENTS_DONE)
        call_ends(p);
    else if (did != ARGUMENTS_MORE)
        break_at(p, c);
}

/* ---- marks ---- */

struct marks {
    struct str mark[4 + DIALECT_SILENT];
    uint32_t count;
};

static void add(struct marks *m, const char *text)
{
    struct str mark = dialect_mark(text);
    if (mark.len > 0) m->mark[m->count++] = mark;
}

/* Collects the marks that count in the state at hand. */
static struct marks marks_of(const struct dialogue_parser *p)
{
    struct marks m = { .count = 0 };
    const struct call_dialect *d = call_of(p), *all = p->setup.dialects.call;
    const struct think_dialect *t = p->setup.dialects.think;
    if (t && p->state == AT_THINKING) {
        add(&m, t->end);
    } else if (d && p->state == AT_AFTER) {
        add(&m, d->call_end);
    } else if (d && p->state == AT_SECTION) {
        add(&m, d->call_begin);
        add(&m, d->calls_end);
    } else {
        if (t) add(&m, t->begin);
        if (d) add(&m, d->calls_begin ? d->calls_begin : d->call_begin);
        if (d) add(&m, d->call_begin_too);
        for (uint32_t i = 0; all && i < DIALECT_SILENT; i++)
            add(&m, all->silent[i]);
    }
    return m;
}

/* Returns true if a mark may begin with the byte. Most bytes of an output begin none; to collect the marks for each
 * byte doubles the time that content takes. */
static bool begins_mark(struct dialogue_parser *p, char c)
{
    if (p->first_of != p->state + 1) {
        const struct marks m = marks_of(p);
        memset(p->first, 0, sizeof p->first);
        for (uint32_t i = 0; i < m.count; i++)
            p->first[(uint8_t)m.mark[i].data[0] / 64] |= 1ULL << (uint8_t)m.mark[i].data[0] % 64;
        p->first_of = (uint8_t)(p->state + 1);
    }
    return p->first[(uint8_t)c / 64] >> (uint8_t)c % 64 & 1;
}

static void thinking_begins(struct dialogue_parser *p)
{
    p->state = AT_THINKING;
    p->lead = LEAD_DROP;
    buf_clear(&p->space);
}

static void section_begins(struct dialogue_parser *p, bool bare)
{
    p->state = AT_SECTION;
    p->in_section = p->no_call = true;
    p->in_list = false;
    p->is_bare = bare;
}

static void section_ends(struct dialogue_parser *p)
{
    p->state = AT_CONTENT;
    p->in_section = false;
    p->lead = LEAD_KEEP;
    buf_clear(&p->raw);
}

/* A mark of a call: until the call is told, it and the white space before it may still be content. */
static void keep_mark(struct dialogue_parser *p, struct str mark)
{
    if (p->lead == LEAD_KEEP) buf_str(&p->raw, buf_view(&p->space));
    buf_clear(&p->space);
    buf_str(&p->raw, mark);
}

static void met(struct dialogue_parser *p, struct str mark)
{
    const struct call_dialect *d = call_of(p);
    const struct think_dialect *t = p->setup.dialects.think;
    if (p->state == AT_THINKING) {
        p->state = AT_CONTENT;
        p->lead = LEAD_DROP;
    } else if (p->state == AT_AFTER) {
        p->state = p->in_section ? AT_SECTION : AT_CONTENT;
    } else if (d && p->state == AT_SECTION) {
        if (d->calls_end && str_eq(mark, dialect_mark(d->calls_end)) && !p->no_call) {
            section_ends(p);
            return;
        }
        buf_str(&p->raw, mark);
        if (d->calls_end && str_eq(mark, dialect_mark(d->calls_end)))
            break_off(p); /* a section without a call */
        else
            call_begins(p);
    } else if (t && str_eq(mark, dialect_mark(t->begin))) {
        thinking_begins(p);
    } else if (d && d->calls_begin && str_eq(mark, dialect_mark(d->calls_begin))) {
        keep_mark(p, mark);
        section_begins(p, false);
    } else if (d && ((d->call_begin && str_eq(mark, dialect_mark(d->call_begin))) ||
                     (d->call_begin_too && str_eq(mark, dialect_mark(d->call_begin_too))))) {
        keep_mark(p, mark);
        p->in_section = p->is_bare = false;
        call_begins(p);
    } else { /* a silent one */
        p->lead = LEAD_DROP;
        buf_clear(&p->space);
    }
}

/* ---- text ---- */

static void content_byte(struct dialogue_parser *p, char c)
{
    const struct call_dialect *d = call_of(p);
    if (p->lead != LEAD_NONE && is_space(c) && p->space.len < DIALOGUE_SPACE_BYTES_MAX) {
        buf_byte(&p->space, c);
        return;
    }
    if (p->fresh && d && d->bare && c == (d->list ? '[' : '{')) {
        p->fresh = false;
        keep_mark(p, (struct str){ 0 });
        section_begins(p, true);
        step(p, c);
        return;
    }
    struct buf *out = run_of(p, DIALOGUE_CONTENT);
    if (p->lead == LEAD_KEEP) buf_str(out, buf_view(&p->space));
    buf_clear(&p->space);
    p->lead = LEAD_NONE;
    p->fresh = false;
    buf_byte(out, c);
}

static void thinking_byte(struct dialogue_parser *p, char c)
{
    if (p->setup.reasoned) p->setup.reasoned(p->setup.arg, p->taken - p->again - 1);
    if (p->lead == LEAD_DROP && is_space(c)) return;
    p->lead = LEAD_NONE;
    buf_byte(run_of(p, DIALOGUE_REASONING), c);
}

/* Reads a byte between calls that belongs to no mark. */
static void section_byte(struct dialogue_parser *p, char c)
{
    const struct call_dialect *d = row_of(p);
    bool opens = (c == '{' && d->shape == CALL_JSON && !d->call_begin) ||
                 (d->shape == CALL_PYTHON && p->in_list && is_name_char(c));
    if (opens) {
        call_begins(p);
        step(p, c);
    } else if (is_space(c) || (!p->no_call && (c == ',' || c == ';'))) {
        if (p->no_call) keep(p, c);
    } else if (c == '[' && d->list && !p->in_list && p->no_call) {
        p->in_list = true;
        keep(p, c);
    } else if (c == ']' && p->in_list && !p->no_call) {
        p->in_list = false;
        if (!d->calls_end || p->is_bare) section_ends(p);
    } else {
        break_at(p, c);
    }
}

static void text_byte(struct dialogue_parser *p, char c)
{
    if (p->state == AT_THINKING) {
        thinking_byte(p, c);
    } else if (p->state == AT_SECTION) {
        section_byte(p, c);
    } else if (p->state == AT_AFTER) {
        if (is_space(c)) return;
        p->state = p->in_section ? AT_SECTION : AT_CONTENT; /* the end mark was left out */
        step(p, c);
    } else {
        content_byte(p, c);
    }
}

/* Decides about `held`, which goes on as no mark (or the output has ended): its longest mark counts, else its
 * first byte is text; the rest is read again. */
static void settle(struct dialogue_parser *p, const struct marks *m)
{
    char rest[DIALOGUE_MARK_BYTES_MAX];
    struct str held = buf_view(&p->held), longest = { 0 };
    for (uint32_t i = 0; i < m->count; i++)
        if (str_starts(held, m->mark[i]) && m->mark[i].len > longest.len) longest = m->mark[i];
    char first = held.data[0];
    size_t used = max_size(longest.len, 1), left = min_size(held.len - used, sizeof rest);
    memcpy(rest, held.data + used, left);
    buf_clear(&p->held);
    p->again += (uint32_t)left;
    if (longest.len > 0)
        met(p, longest);
    else
        text_byte(p, first);
    for (size_t i = 0; i < left; i++) {
        p->again--;
        step(p, rest[i]);
    }
}

static void at_marks(struct dialogue_parser *p, char c)
{
    if (p->held.len == 0 && !begins_mark(p, c)) {
        text_byte(p, c);
        return;
    }
    const struct marks m = marks_of(p);
    bool goes_on = false;
    buf_byte(&p->held, c);
    struct str held = buf_view(&p->held);
    for (uint32_t i = 0; i < m.count; i++) {
        goes_on |= m.mark[i].len > held.len && str_starts(m.mark[i], held);
    }
    if (!goes_on) settle(p, &m);
}

static void step(struct dialogue_parser *p, char c)
{
    switch ((enum state)p->state) {
    case AT_HEAD:
        at_head(p, c);
        break;
    case AT_NAME:
        at_name(p, c);
        break;
    case AT_NAME_END:
        at_name_end(p, c);
        break;
    case AT_BODY:
        at_body(p, c);
        break;
    case AT_CONTENT:
    case AT_THINKING:
    case AT_SECTION:
    case AT_AFTER:
        at_marks(p, c);
        break;
    }
}

/* ---- life ---- */

void dialogue_init(struct dialogue_parser *p, const struct dialogue_setup *setup)
{
    *p = (struct dialogue_parser){ .setup = *setup, .lead = LEAD_KEEP, .fresh = true };
    if (setup->thinking && setup->dialects.think) thinking_begins(p);
}

void dialogue_fini(struct dialogue_parser *p)
{
    buf_fini(&p->held);
    buf_fini(&p->space);
    buf_fini(&p->raw);
    buf_fini(&p->early);
    buf_fini(&p->run);
}

static int status(struct dialogue_parser *p)
{
    const struct buf *const all[] = { &p->held, &p->space, &p->raw, &p->early, &p->run };
    for (size_t i = 0; i < COUNT_OF(all) && p->rc == 0; i++)
        p->rc = all[i]->rc;
    return p->rc;
}

bool dialogue_is_reasoning(const struct dialogue_parser *p)
{
    return p->state == AT_THINKING;
}

int dialogue_push(struct dialogue_parser *p, struct str piece)
{
    for (size_t i = 0; i < piece.len && p->rc == 0; i++) {
        p->taken++;
        step(p, piece.data[i]);
    }
    if (status(p) == 0) tell_run(p);
    return status(p);
}

int dialogue_end(struct dialogue_parser *p)
{
    for (uint32_t i = 0; i <= 2 * DIALOGUE_MARK_BYTES_MAX && p->held.len > 0; i++) {
        if (p->state != AT_CONTENT && p->state != AT_THINKING) break;
        const struct marks m = marks_of(p);
        settle(p, &m);
    }
    bool untold = p->state != AT_CONTENT && p->state != AT_THINKING && p->state != AT_AFTER;
    if (untold && (p->state != AT_SECTION || p->no_call)) break_off(p);
    if (p->state == AT_CONTENT && p->lead == LEAD_KEEP && p->calls == 0)
        buf_str(run_of(p, DIALOGUE_CONTENT), buf_view(&p->space));
    if (status(p) == 0) tell_run(p);
    return status(p);
}
