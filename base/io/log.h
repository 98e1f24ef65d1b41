/* log.h - writes each event as one line, in one write: `time level event key=value ...` to stderr.
 *
 * Layer:   base/io (base/core)
 * Threads: any; a line is one write(2) of at most LOG_LINE_MAX bytes, so lines never mix
 * Rules:   (1) keys and blanks come from the format, values from its conversions: a value with a
 *              blank, a quote, '=' or a control byte is quoted and escaped, so that no peer can
 *              forge a key or a line
 *          (2) names are snake_case; the request id comes first
 *
 *     log_event(LOG_INFO, "instance_up", "id=%s port=%d", id, port);
 *     2026-03-01T12:00:00.000123Z info instance_up id=i-7 port=8201
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define LOG_LINE_MAX 4096 /* PIPE_BUF: longer lines are cut and end with cut=true */

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_LEVEL_COUNT };

extern const char *const log_level_names[LOG_LEVEL_COUNT + 1]; /* for a CONFIG_ENUM row */

void log_set_level(enum log_level least); /* default: LOG_INFO */
void log_set_fd(int fd);                  /* default: 2 */

/* Sets the size at which the file behind that descriptor becomes FILE.1 and a new one begins; 0: never. */
void log_set_max(uint64_t bytes_max);

/* Logs an event. Conversions: d i u x X o c s f g e p and %%, with flags, width, precision (also .*),
 * and the lengths hh h l ll z j t. */
void log_event(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns how many lines could not be written (full pipe, closed stderr) since the start. */
uint64_t log_lost(void);

/* Lets one event per `every_us` through, of those that may come by the thousand.
 *     if (log_pass(&limit, now_us, 1000000, &skipped)) log_event(..., "skipped=%lu", skipped); */
struct log_limit {
    int64_t next_us;
    uint64_t skipped;
};
bool log_pass(struct log_limit *limit, int64_t now_us, int64_t every_us, uint64_t *ret_skipped);
