/* first_boot.c - reads when user data began, and tells ages: both sides' clocks may differ, lengths do not. */
#include "agent/first_boot.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"

#include <stdio.h>
#include <unistd.h>

#define FILE_BYTES_MAX 256

/* Reads "WORD SECONDS.HUNDREDTHS". False: it is something else, or of an earlier boot. */
static bool parse(struct str text, int64_t now_us, struct first_boot *ret)
{
    struct str line = str_cut(&text, '\n'), number = line, word = str_cut(&number, ' ');
    struct str part = number, whole = str_cut(&part, '.');
    int64_t seconds, hundredths = 0;
    if (!number.data || str_to_i64(whole, &seconds) < 0 || seconds < 0 ||
        seconds > INT64_MAX / 1000000 - 1)
        return false;
    if (part.len == 2 && (str_to_i64(part, &hundredths) < 0 || hundredths < 0)) return false;
    ret->is_machine = str_eq(word, STR("machine"));
    ret->begun_us = seconds * 1000000 + hundredths * 10000;
    return (ret->is_machine || str_eq(word, STR("container"))) && ret->begun_us <= now_us;
}

void first_boot_open(struct first_boot *f, struct str folder, int64_t now_us)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    *f = (struct first_boot){ .started_us = now_us };
    int n = snprintf(f->path, sizeof f->path, STR_FMT "/begun", STR_ARG(folder));
    if (folder.len == 0 || n < 0 || (size_t)n >= sizeof f->path) return;
    if (file_read(f->path, FILE_BYTES_MAX, &text, NULL) < 0) return;
    f->is_known = parse(buf_view(&text), now_us, f);
}

void first_boot_loaded(struct first_boot *f, int64_t now_us)
{
    if (!f->is_known || f->loaded_us) return;
    f->loaded_us = now_us;
    (void)unlink(f->path);
}

/* 0 means that it is not reported. */
static uint64_t age_ms(int64_t since_us, int64_t now_us)
{
    return (uint64_t)max_i64(1, (now_us - since_us) / 1000);
}

void first_boot_fill(const struct first_boot *f, int64_t now_us, struct agent_report *ret)
{
    if (!f->is_known) return;
    if (f->is_machine) ret->booted_ms = age_ms(0, now_us); /* its clock began with it */
    ret->begun_ms = age_ms(f->begun_us, now_us);
    ret->started_ms = age_ms(f->started_us, now_us);
    if (f->loaded_us) ret->loaded_ms = age_ms(f->loaded_us, now_us);
}
