/* log.c - formats an event as one line, writes it in one write, and bounds the log's file.
 *
 * We walk the format ourselves rather than print it whole by vsnprintf, because only then we know
 * where a value begins and ends: a value that could be taken for more than a value is quoted. Each
 * conversion itself is still libc's. A line is built on the stack: no malloc, no lock.
 */
#include "base/io/log.h"

#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/str.h"
#include "base/io/loop/clock.h"
#include "base/io/loop/lock.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CUT_NOTE " cut=true"
#define SPEC_MAX 32 /* of one conversion: %-+ #0 with two numbers */

const char *const log_level_names[LOG_LEVEL_COUNT + 1] = { "debug", "info", "warn", "error", NULL };

static int level_least = LOG_INFO;
static int log_fd = STDERR_FILENO;
static uint64_t lost;

struct line {
    char text[LOG_LINE_MAX];
    size_t len;
    bool cut;
};

struct args {
    va_list ap; /* in a struct, so that helpers advance the caller's */
};

/* ---- the file ----
 *
 * The log's own writer keeps the file within its bound: FILE, FILE.1, FILE.2, ... No other process
 * would do it: the command that started us has ended, and a fleet on a laptop has no logrotate.
 * The writer counts its bytes, and once the count may have reached the bound it asks for the size,
 * because a process may share the file with its children. The new file takes the number of the old
 * descriptor, so that every line goes on through the same number.
 *
 *   (1) only a regular file is turned: a pipe, a terminal and the journal keep their own bounds
 *   (2) a file that another program has renamed or removed is left alone
 *   (3) no line is lost or halved: a line that was being written ends up in FILE.1
 *   (4) any thread may write; one of them renames, the others go on writing to the old file */

#define LOG_FILE_COUNT 3 /* older files that are kept beside the one being written */

static struct {
    struct lock lock; /* over the turn */
    int fd;
    char path[PATH_MAX];
    uint64_t bytes_max; /* atomic; 0: nothing is watched */
    int64_t left;       /* atomic: bytes until the size is looked at */
} file = { .lock = LOCK_INIT };

/* Watches the file behind `fd` from now on, or none if bytes_max is 0. Call before other threads log. */
static void file_keep(int fd, uint64_t bytes_max)
{
    struct stat st;
    char link[32], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    bool ours = bytes_max > 0 && n > 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    file.fd = fd;
    if (ours) memcpy(file.path, path, (size_t)n);
    if (ours) file.path[n] = 0;
    __atomic_store_n(&file.left, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&file.bytes_max, ours ? bytes_max : 0, __ATOMIC_RELEASE);
}

/* Writes "PATH.N", or PATH itself for 0. */
static bool file_name(char ret[PATH_MAX], int number)
{
    int n = number ? snprintf(ret, PATH_MAX, "%s.%d", file.path, number)
                   : snprintf(ret, PATH_MAX, "%s", file.path);
    return n > 0 && n < PATH_MAX;
}

/* Returns true if the path still names the file that `st` describes. */
static bool is_there(const struct stat *st)
{
    struct stat now;
    return stat(file.path, &now) == 0 && now.st_dev == st->st_dev && now.st_ino == st->st_ino;
}

/* Renames the files and begins a new one. When a step fails, the old file stays in use, and the next try
 * comes after as many bytes again. */
static void turn(const struct stat *st)
{
    char from[PATH_MAX], to[PATH_MAX];
    if (!is_there(st)) return;
    for (int k = LOG_FILE_COUNT; k > 0; k--)
        if (file_name(from, k - 1) && file_name(to, k)) (void)rename(from, to);
    int fd = open(file.path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    struct stat out;
    bool both = file.fd != STDOUT_FILENO && fstat(STDOUT_FILENO, &out) == 0 &&
                out.st_dev == st->st_dev && out.st_ino == st->st_ino;
    if (both) (void)dup2(fd, STDOUT_FILENO);
    (void)dup2(fd, file.fd);
    close(fd);
}

static void look(uint64_t bytes_max)
{
    struct stat st;
    if (fstat(file.fd, &st) < 0) return;
    uint64_t size = (uint64_t)st.st_size;
    /* Set before the turn: bytes that other threads write meanwhile count for the new file. */
    int64_t left = (int64_t)(size < bytes_max ? bytes_max - size : bytes_max);
    __atomic_store_n(&file.left, left, __ATOMIC_RELAXED);
    if (size >= bytes_max) turn(&st);
}

/* Counts bytes that were written to the file; almost always this is one subtraction. */
static void file_wrote(size_t bytes)
{
    uint64_t bytes_max = __atomic_load_n(&file.bytes_max, __ATOMIC_ACQUIRE);
    if (bytes_max == 0) return;
    if (__atomic_sub_fetch(&file.left, (int64_t)bytes, __ATOMIC_RELAXED) > 0) return;
    if (!lock_try(&file.lock)) return; /* another thread turns the file */
    look(bytes_max);
    lock_drop(&file.lock);
}

void log_set_level(enum log_level least)
{
    __atomic_store_n(&level_least, (int)least, __ATOMIC_RELAXED);
}

void log_set_fd(int fd)
{
    __atomic_store_n(&log_fd, fd, __ATOMIC_RELAXED);
}

void log_set_max(uint64_t bytes_max)
{
    file_keep(__atomic_load_n(&log_fd, __ATOMIC_RELAXED), bytes_max);
}

static bool log_enabled(enum log_level level)
{
    return (int)level >= __atomic_load_n(&level_least, __ATOMIC_RELAXED);
}

uint64_t log_lost(void)
{
    return __atomic_load_n(&lost, __ATOMIC_RELAXED);
}

/* Returns true if `len` more bytes fit, with room for a closing quote, the note and the newline. */
static bool fits(const struct line *l, size_t len)
{
    return !l->cut && l->len + len + 1 + sizeof CUT_NOTE <= sizeof l->text;
}

/* Appends all of `s` or nothing, so that no escape is halved. */
static void put(struct line *l, struct str s)
{
    if (!fits(l, s.len)) {
        l->cut = true;
        return;
    }
    if (s.len == 0) return;
    memcpy(l->text + l->len, s.data, s.len);
    l->len += s.len;
}

/* ---- conversions ---- */

/* Copies "%-5.3l" and the like into spec, taking the values of '*'. Returns what follows. */
static const char *spec_take(const char *p, struct args *a, char spec[SPEC_MAX], char *ret_length)
{
    size_t n = 0;
    char length = 0;
    spec[n++] = *p++;
    for (; *p && strchr("-+ #0123456789.*", *p); p++) {
        must(n + 12 < SPEC_MAX);
        if (*p == '*')
            n += (size_t)snprintf(spec + n, SPEC_MAX - n, "%d", va_arg(a->ap, int));
        else
            spec[n++] = *p;
    }
    for (; *p && strchr("hlzjt", *p); p++) {
        /* hh and ll are told from h and l by upper case. */
        length = length == *p ? (char)(*p - 'a' + 'A') : *p;
        spec[n++] = *p;
    }
    spec[n++] = *p;
    spec[n] = 0;
    *ret_length = length;
    return p;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* spec is a piece of a checked format */

static int print_integer(char *out, size_t cap, const char *spec, char length, struct args *a)
{
    /* Signed or not makes no difference to how va_arg hands over the bits. */
    switch (length) {
    case 'l':
        return snprintf(out, cap, spec, va_arg(a->ap, long));
    case 'L':
        return snprintf(out, cap, spec, va_arg(a->ap, long long));
    case 'z':
        return snprintf(out, cap, spec, va_arg(a->ap, size_t));
    case 'j':
        return snprintf(out, cap, spec, va_arg(a->ap, intmax_t));
    case 't':
        return snprintf(out, cap, spec, va_arg(a->ap, ptrdiff_t));
    default:
        return snprintf(out, cap, spec, va_arg(a->ap, int));
    }
}

/* Appends one conversion to out[0..*len); a text that does not fit is cut. */
static const char *convert(const char *p, struct args *a, char *out, size_t cap, size_t *len)
{
    char spec[SPEC_MAX], length;
    p = spec_take(p, a, spec, &length);
    char *to = out + *len;
    size_t room = cap - *len;
    int n = 0;
    must(*p && strchr("diuxXocsfFgGeEp%", *p));
    if (strchr("diuxXoc", *p))
        n = print_integer(to, room, spec, length, a);
    else if (*p == 's')
        n = snprintf(to, room, spec, va_arg(a->ap, const char *));
    else if (strchr("fFgGeE", *p))
        n = snprintf(to, room, spec, va_arg(a->ap, double));
    else if (*p == 'p')
        n = snprintf(to, room, spec, va_arg(a->ap, void *));
    else
        n = snprintf(to, room, "%%");
    *len += min_size(n < 0 ? 0 : (size_t)n, room - 1);
    return p + 1;
}

#pragma GCC diagnostic pop

/* ---- values ---- */

static bool is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

static bool is_bare(struct str s)
{
    if (s.len == 0) return false;
    while (s.len > 0) {
        uint32_t c;
        size_t n = utf8_decode(s, &c);
        if (n == 0 || is_control(c) || c == ' ' || c == '"' || c == '=' || c == '\\') return false;
        s.data += n;
        s.len -= n;
    }
    return true;
}

static void put_escaped(struct line *l, struct str *s)
{
    uint32_t c = 0;
    char text[8];
    size_t n = utf8_decode(*s, &c);
    if (n == 0) {
        snprintf(text, sizeof text, "\\x%02x", (unsigned char)s->data[0]);
        n = 1;
    } else if (c == '"' || c == '\\') {
        snprintf(text, sizeof text, "\\%c", (char)c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
        snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    } else if (is_control(c)) {
        snprintf(text, sizeof text, "\\x%02x", c);
    } else {
        memcpy(text, s->data, n);
        text[n] = 0;
    }
    put(l, str_from(text));
    s->data += n;
    s->len -= n;
}

static void put_value(struct line *l, struct str s)
{
    bool bare = is_bare(s);
    if (bare && fits(l, s.len)) {
        put(l, s);
        return;
    }
    if (!bare) put(l, STR("\""));
    if (l->cut) return;
    while (s.len > 0 && !l->cut)
        put_escaped(l, &s);
    /* Room is kept for it: a line that was cut stays readable for machines. */
    if (!bare) l->text[l->len++] = '"';
}

/* Appends one blank-separated part of the format: key=value, or a value alone. */
static const char *put_part(struct line *l, const char *p, struct args *a)
{
    size_t key = strcspn(p, "= %");
    if (p[key] == '=') {
        put(l, str_of(p, key + 1));
        p += key + 1;
    }
    char value[LOG_LINE_MAX];
    size_t len = 0;
    while (*p && *p != ' ') {
        if (*p == '%')
            p = convert(p, a, value, sizeof value, &len);
        else if (len + 1 < sizeof value)
            value[len++] = *p++;
        else
            p++;
    }
    put_value(l, str_of(value, len));
    return p;
}

static void put_head(struct line *l, enum log_level level, const char *event)
{
    int64_t now = clock_wall_us();
    time_t seconds = (time_t)(now / 1000000);
    struct tm t;
    char text[64];
    gmtime_r(&seconds, &t);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &t);
    snprintf(text + n, sizeof text - n, ".%06dZ %s ", (int)(now % 1000000), log_level_names[level]);
    put(l, str_from(text));
    put(l, str_from(event));
}

static void line_write(struct line *l)
{
    if (l->cut) {
        memcpy(l->text + l->len, CUT_NOTE, sizeof CUT_NOTE - 1);
        l->len += sizeof CUT_NOTE - 1;
    }
    l->text[l->len++] = '\n';
    ssize_t n;
    do
        n = write(__atomic_load_n(&log_fd, __ATOMIC_RELAXED), l->text, l->len);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)l->len) __atomic_fetch_add(&lost, 1, __ATOMIC_RELAXED);
    file_wrote(l->len);
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
    if (!log_enabled(level)) return;
    int code = errno; /* callers log and then return -errno */
    struct line l;
    l.len = 0;
    l.cut = false;
    put_head(&l, level, event);
    struct args a;
    va_start(a.ap, format);
    for (const char *p = format; *p && !l.cut;) {
        if (*p == ' ') {
            p++;
            continue;
        }
        put(&l, STR(" "));
        p = put_part(&l, p, &a);
    }
    va_end(a.ap);
    line_write(&l);
    errno = code;
}

bool log_pass(struct log_limit *limit, int64_t now_us, int64_t every_us, uint64_t *ret_skipped)
{
    if (now_us < limit->next_us) {
        limit->skipped++;
        return false;
    }
    *ret_skipped = limit->skipped;
    limit->skipped = 0;
    limit->next_us = now_us + every_us;
    return true;
}
