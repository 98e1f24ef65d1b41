/* t_manifests.c - tests that the chart's objects get namespace, image and secret, and nothing else. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "cli/manifests.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#define SECRET "0123456789abcdef"

static uint32_t count(const struct buf *text, const char *word)
{
    uint32_t n = 0;
    for (const char *at = text->data; (at = strstr(at, word)); at += strlen(word))
        n++;
    return n;
}

static void words_are_replaced(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    const struct manifests m = { STR("serving"), STR("registry.example:5000/muster:1"),
                                 STR(SECRET) };
    assert_int_equal(manifests_write(&m, &out, NULL), 0);
    assert_int_equal(count(&out, "-of-muster"), 0);
    assert_int_equal(count(&out, "  secret: " SECRET "\n"), 1);
    assert_int_equal(count(&out, "kind: Secret\n"), 1);
    assert_int_equal(count(&out, "image: registry.example:5000/muster:1\n"), 3);
    assert_int_equal(count(&out, "muster-controller.serving.svc:8090"), 2);
    assert_int_equal(count(&out, "kind: StatefulSet\n"), 1);
    assert_int_equal(count(&out, "Helm"), 0);
    assert_int_equal(out.data[out.len - 1], '\n');
    assert_true(!str_ends(buf_view(&out), STR("---\n")));
}

static void the_secret_can_be_left_out(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf with = { 0 }, without = { 0 };
    struct manifests m = { STR("a"), STR("i:1"), STR(SECRET) };
    assert_int_equal(manifests_write(&m, &with, NULL), 0);
    m.secret = (struct str){ 0 };
    assert_int_equal(manifests_write(&m, &without, NULL), 0);
    assert_int_equal(count(&without, "kind: Secret\n"), 0);
    assert_int_equal(count(&with, "\nkind: "), count(&without, "\nkind: ") + 1);
    assert_int_equal(count(&with, "---\n"), count(&without, "---\n") + 1);
}

static void odd_names_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *ns, *image, *option;
    } rows[] = {
        { "", "i:1", "--namespace" },
        { "Serving", "i:1", "--namespace" },
        { "-a", "i:1", "--namespace" },
        { "a-", "i:1", "--namespace" },
        { "a.b", "i:1", "--namespace" },
        { "a\nkind: Pod", "i:1", "--namespace" },
        { "a23456789a123456789a123456789a123456789a123456789a123456789a1234", "i:1",
          "--namespace" },
        { "a", "", "--image" },
        { "a", "i: {}", "--image" },
        { "a", "i:1\n  x", "--image" },
        { "a", "'i'", "--image" },
        { "a", "i:", "--image" },
        { "a", "-i", "--image" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        struct err err = { 0 };
        const struct manifests m = { str_from(rows[i].ns), str_from(rows[i].image), STR(SECRET) };
        assert_int_equal(manifests_write(&m, &out, &err), -EINVAL);
        if (!strstr(err.text, rows[i].option)) fail_msg("row %zu: %s", i, err.text);
        assert_int_equal(out.len, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_replaced),
        cmocka_unit_test(the_secret_can_be_left_out),
        cmocka_unit_test(odd_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
