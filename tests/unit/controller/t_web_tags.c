/* t_web_tags.c - writes texts as labels and reads them back: rows with their reason, and random texts. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "controller/cloud/web/web_tags.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static const struct web_tag_rule wide = { .upper = true, .dot = true }, narrow = { 0 };

static void texts_as_labels(void **state)
{
    (void)state;
    static const struct {
        const struct web_tag_rule *rule;
        const char *text, *label, *why;
    } rows[] = {
        { &wide, "chat-7b.q4", "chat-7b.q4", "as it stands" },
        { &wide, "org/chat model", "org_2fchat_20model", "other characters" },
        { &wide, "a_b", "a_5fb", "the mark of escapes itself" },
        { &wide, "-a.", "0__2da_2e", "signs at an end" },
        { &wide, "/a", "0__2fa", "it begins with a letter or digit" },
        { &wide, "0_2f", "0_5f2f", "what looks like one of ours" },
        { &wide, "", "", "nothing" },
        { &narrow, "Qwen3", "0__51wen3", "no upper case" },
        { &narrow, "v1.5", "v1_2e5", "no dots" },
        { &wide, "\xc3\xa9", "0__c3_a9", "UTF-8" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char label[WEB_TAG_BYTES], back[NAME_BYTES];
        assert_int_equal(
            web_tag_write(rows[i].rule, str_from(rows[i].text), "service", label, NULL), 0);
        if (strcmp(label, rows[i].label) != 0) fail_msg("%s: %s", rows[i].why, label);
        assert_int_equal(web_tag_read(str_from(label), back, sizeof back), 0);
        assert_string_equal(back, rows[i].text);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    char label[WEB_TAG_BYTES], text[NAME_BYTES];
    struct err err = { 0 };
    memset(text, '/', 30);
    text[30] = 0;
    assert_int_equal(web_tag_write(&wide, str_from(text), "service", label, &err), -EINVAL);
    assert_non_null(strstr(err.text, "service"));
    memset(text, 'a', NAME_BYTES - 1);
    text[NAME_BYTES - 1] = 0;
    assert_int_equal(web_tag_write(&wide, str_from(text), "service", label, NULL), 0);
    assert_int_equal(web_tag_read(str_from(label), text, 10), -E2BIG);
}

/* Unlike texts have unlike labels, because each is read back. */
static void any_text_comes_back(void **state)
{
    (void)state;
    static const char bytes[] = "aZ0_-./ \xff";
    struct rng rng;
    uint32_t written = 0;
    rng_seed(&rng, 7);
    for (int n = 0; n < 200000; n++) {
        char text[NAME_BYTES], label[WEB_TAG_BYTES], back[NAME_BYTES];
        size_t len = rng_below(&rng, 24);
        for (size_t i = 0; i < len; i++)
            text[i] = bytes[rng_below(&rng, sizeof bytes - 1)];
        text[len] = 0;
        const struct web_tag_rule rule = { .upper = n % 2, .dot = n % 3 == 0 };
        if (web_tag_write(&rule, str_from(text), "t", label, NULL) < 0) continue;
        written++;
        for (const char *c = label; *c; c++) {
            bool end = c == label || !c[1];
            bool letter = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') ||
                          (rule.upper && *c >= 'A' && *c <= 'Z');
            assert_true(letter || (!end && (*c == '-' || *c == '_' || (rule.dot && *c == '.'))));
        }
        assert_int_equal(web_tag_read(str_from(label), back, sizeof back), 0);
        if (strcmp(back, text) != 0) fail_msg("'%s' as %s came back as '%s'", text, label, back);
    }
    assert_true(written > 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_as_labels),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(any_text_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
