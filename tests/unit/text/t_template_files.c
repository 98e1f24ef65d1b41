/* t_template_files.c - chat templates of current models against jinja2 itself.
 *
 * Runs where the shared test data lie (MUSTER_SHARED, or ../shared beside the checkout) and
 * python3 has jinja2; the templates belong to their models and are not ours to ship. */
#include "tests/unit/text/template_vectors.h"

#include <setjmp.h>
#include <stdarg.h>
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
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_as_jinja2) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
