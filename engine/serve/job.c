/* job.c - a request's own memory. */
#include "engine/serve/job.h"

#include <stdlib.h>

struct job *job_new(void)
{
    return calloc(1, sizeof(struct job));
}

void job_free(struct job *job)
{
    if (!job) return;
    free(job->ask.ids);
    job_mail_fini(&job->mail);
    free(job);
}

int job_set_stop(struct job *job, const struct str *stop, uint32_t count)
{
    size_t used = 0;
    if (count > ANSWER_STOP_MAX) return -E2BIG;
    for (uint32_t i = 0; i < count; i++) {
        if (stop[i].len > sizeof job->ask.stop_bytes - used) return -E2BIG;
        memcpy(job->ask.stop_bytes + used, stop[i].data, stop[i].len);
        job->ask.stop_store[i] = str_of(job->ask.stop_bytes + used, stop[i].len);
        used += stop[i].len;
    }
    job->ask.spec.stop = job->ask.stop_store;
    job->ask.spec.stop_count = count;
    return 0;
}

void job_mail_fini(struct job_mail *mail)
{
    buf_fini(&mail->text);
}
