/* t_template_files.c - chat templates of current models against jinja2 itself.
 *
 * Runs where the shared test data lie (MUSTER_SHARED, or ../shared beside the checkout) and
 * python3 has jinja2; the templates belong to their models and are not ours to ship. */
#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/core/work.h"
#include "base/text/chat_template.h"
#include "tests/unit/text/collisions.h"
#include "tests/unit/text/template_vectors.h"
#include "tests/unit/unit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define RENDERED_MIN 700

static char folder[4096];

static void test_same_as_jinja2(void **state)
{
    (void)state;
    char command[sizeof folder + 128];
    snprintf(command, sizeof command, "python3 tests/vectors/template/make.py '%s'", folder);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    struct template_score score = template_vectors_check(f);
    assert_int_equal(pclose(f), 0);
    print_message("%u equal, %u refused by both, %u rendered beyond the sandbox, %u differ\n",
                  score.equal, score.refused, score.beyond, score.differ);
    assert_int_equal(score.differ, 0);
    assert_true(score.equal >= RENDERED_MIN);
}

/* What a template's dicts cost, in counted work, under keys made to collide. */

#define KEYS 1000 /* below JSON_KEYS_MAX: a table of 2,048 places */
#define TABLE_BITS 11

typedef void (*key_fn)(unsigned bits, uint64_t *state, char ret[9]);

static void harmless(unsigned bits, uint64_t *state, char ret[9])
{
    (void)bits;
    snprintf(ret, 9, "k%07d", (int)(*state)++);
}

static void object_of(key_fn key, struct buf *out)
{
    uint64_t state = 88172645463325253u;
    if (key == harmless) state = 1;
    for (int i = 0; i < KEYS; i++) {
        char text[9];
        key(TABLE_BITS, &state, text);
        buf_printf(out, "%s\"%s\":0", i == 0 ? "{" : ",", text);
    }
    buf_text(out, "}");
}

/* Renders with the object as kwargs; the result, and the work it took. */
static int render(struct str kwargs, uint64_t steps_max, uint64_t *ret_work)
{
    CLEANUP(chat_template_freep) struct chat_template *t = NULL;
    CLEANUP(chat_output_fini) struct chat_output out = { 0 };
    struct err err = { "" };
    assert_int_equal(chat_template_compile(STR("{{ messages[0].content }}"), &t, &err), 0);
    const struct chat_inputs in = { .messages = STR("[{\"role\":\"user\",\"content\":\"hi\"}]"),
                                    .kwargs = kwargs };
    const struct chat_limits limits = { .steps_max = steps_max };
    work_units = 0;
    int rc = chat_template_render(t, &in, &limits, &out, &err);
    *ret_work = work_units;
    return rc;
}

/* Whoever knows the code can make keys that collide under hash64. */
static void known_collisions_are_like_other_keys(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf plain = { 0 }, flood = { 0 };
    uint64_t plain_work, flood_work;
    object_of(harmless, &plain);
    object_of(collision_fast, &flood);
    const char *first = flood.data + 2, *second = first + strlen("12345678\":0,\"");
    uint64_t mask = (1u << TABLE_BITS) - 1;
    assert_true((hash64(first, 8, 1) & mask) == (hash64(second, 8, 1) & mask));
    assert_int_equal(render(buf_view(&plain), 0, &plain_work), 0);
    assert_int_equal(render(buf_view(&flood), 0, &flood_work), 0);
    assert_true(flood_work < plain_work + plain_work / 4);
}

/* Should the key ever be known, the request pays with its own steps. */
static void probes_are_steps(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf plain = { 0 }, flood = { 0 };
    uint64_t plain_work, flood_work, steps_max = 3 * KEYS;
    object_of(harmless, &plain);
    object_of(collision_keyed, &flood);
    assert_int_equal(render(buf_view(&plain), steps_max, &plain_work), 0);
    assert_int_equal(render(buf_view(&flood), steps_max, &flood_work), -E2BIG);
    assert_true(flood_work < plain_work + 2 * steps_max * WORK_STEP + 128 * steps_max);
}

int main(void)
{
    const char *shared = getenv("MUSTER_SHARED");
    snprintf(folder, sizeof folder, "%s/data/chat-templates", shared ? shared : "../shared");
    if (access(folder, R_OK) != 0) {
        printf("skipped: %s is not here (set MUSTER_SHARED)\n", folder);
        return 77;
    }
    if (system("python3 -c 'import jinja2' 2>/dev/null") != 0) {
        printf("skipped: python3 has no jinja2 (package python3-jinja2)\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_jinja2),
        cmocka_unit_test(known_collisions_are_like_other_keys),
        cmocka_unit_test(probes_are_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
