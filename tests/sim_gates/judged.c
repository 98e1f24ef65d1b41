/* judged.c - keeps the judged arms of a process in a list, because gates have some dozens. */
#include "tests/sim_gates/judged.h"

#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "policies/catalog.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define ARMS_MAX 512
#define ARM_BYTES 128
#define PAGE_BYTES_MAX (1u << 20)

static char arms[ARMS_MAX][ARM_BYTES];
static uint32_t arm_count;

void judged_add(const char *arm)
{
    for (uint32_t i = 0; i < arm_count; i++)
        if (strcmp(arms[i], arm) == 0) return;
    must(arm_count < ARMS_MAX && strlen(arm) < ARM_BYTES);
    snprintf(arms[arm_count++], ARM_BYTES, "%s", arm);
}

/* Returns true if the arm names the policy: "order=fcfs fair=none" names fcfs of kind order. */
static bool arm_names(const char *arm, const char *option, const char *policy)
{
    CLEANUP(buf_fini) struct buf wanted = { 0 };
    buf_printf(&wanted, "%s=%s", option, policy);
    struct str rest = str_from(arm);
    while (rest.len > 0)
        if (str_eq(str_cut(&rest, ' '), buf_view(&wanted))) return true;
    return false;
}

static bool is_judged(const char *option, const char *policy)
{
    for (uint32_t i = 0; i < arm_count; i++)
        if (arm_names(arms[i], option, policy)) return true;
    return false;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Returns where `name` stands as a whole word, or NULL. */
static const char *find_word(const char *text, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = strstr(text, name); at; at = strstr(at + 1, name))
        if ((at == text || !is_word(at[-1])) && !is_word(at[len])) return at;
    return NULL;
}

/* Returns true if a list item of the page has both the name and a figure; a gate's source
 * needs only the name. */
static bool page_tells(char *text, const char *page, const char *policy)
{
    if (strncmp(page, "docs/", 5) != 0) return find_word(text, policy);
    for (char *item = strstr(text, "\n- "); item;) {
        char *next = strstr(item + 1, "\n- "), *end = strstr(item + 1, "\n\n");
        if (end && (!next || end < next)) *end = '\0';
        if (next) *next = '\0';
        if (find_word(item, policy) && strpbrk(item, "0123456789")) return true;
        item = next;
        if (item) *item = '\n';
    }
    return false;
}

static bool is_told(const struct judged_elsewhere *e)
{
    CLEANUP(buf_fini) struct buf text = { .max = PAGE_BYTES_MAX };
    struct err err = { "" };
    if (file_read(e->page, PAGE_BYTES_MAX, &text, &err) < 0) return false;
    return page_tells(text.data, e->page, e->policy);
}

struct search {
    const char *option;
    const struct judged_elsewhere *elsewhere;
    uint32_t missed;
};

static int look(void *ctx, const struct policy_info *policy)
{
    struct search *s = ctx;
    struct str option = str_from(s->option);
    if (!str_eq(str_from(policy->kind), str_cut(&option, '-'))) return 0;
    if (is_judged(s->option, policy->name)) return 0;
    for (const struct judged_elsewhere *e = s->elsewhere; e && e->policy; e++) {
        if (strcmp(e->policy, policy->name) != 0) continue;
        if (is_told(e)) return 0;
        printf("%s does not tell what %s=%s is worth\n", e->page, policy->kind, policy->name);
    }
    printf("no effect of %s=%s is held against anything\n", policy->kind, policy->name);
    s->missed++;
    return 0;
}

uint32_t judged_missed(const char *kind, const struct judged_elsewhere *elsewhere)
{
    struct search s = { .option = kind, .elsewhere = elsewhere };
    policies_each(look, &s);
    return s.missed;
}
