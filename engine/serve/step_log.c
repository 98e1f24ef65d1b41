/* step_log.c - buffered lines; nothing is flushed between a step and the next. */
#include "engine/serve/step_log.h"

#include "base/io/log.h"

#include <errno.h>

int step_log_open(struct step_log *log, struct str path, struct err *err)
{
    *log = (struct step_log){ 0 };
    if (path.len == 0) return 0;
    log->file = fopen(path.data, "we");
    if (!log->file) {
        int rc = -errno;
        return err_set(err, rc, "--step-log " STR_FMT ": %s", STR_ARG(path), err_text(NULL, rc));
    }
    fputs("prefill_tokens,prefill_chunks,decoding_seqs,kv_tokens_read,kv_tokens_decoding,seconds\n",
          log->file);
    return 0;
}

static void end_log(struct step_log *log, const char *why)
{
    log_event(LOG_WARN, "step_log_ended", "lines=%u why=%s", log->lines, why);
    step_log_close(log);
}

void step_log_add(struct step_log *log, const struct perf_shape *shape, double seconds)
{
    if (!log->file) return;
    int rc =
        fprintf(log->file, "%u,%u,%u,%lu,%lu,%.9f\n", shape->prefill_tokens, shape->prefill_chunks,
                shape->decoding_seqs, (unsigned long)shape->kv_tokens_read,
                (unsigned long)shape->kv_tokens_decoding, seconds);
    if (rc < 0) {
        end_log(log, "write_failed");
    } else if (++log->lines == STEP_LOG_LINES) {
        end_log(log, "full");
    }
}

void step_log_close(struct step_log *log)
{
    if (log->file && fclose(log->file) != 0) log_event(LOG_WARN, "step_log_incomplete", " ");
    log->file = NULL;
}
