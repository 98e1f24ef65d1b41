/* t_xml.c - reads replies as web services send them, and refuses what would cost memory or reach out. */
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/own.h"
#include "base/io/xml.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

#define BYTES ((size_t)8 << 20)

static void reads_paths_texts_and_siblings(void **state)
{
    (void)state;
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, BYTES);
    struct err err = { 0 };
    struct xml_node *root;
    const char *text =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<R xmlns=\"http://example.org/\"><set><!-- none --><item a='1'><id>i-1</id></item>"
        "<other/><item><id> i-&lt;2&#x41;\n</id><empty/></item></set>"
        "<note>a<b>c</b><![CDATA[<d>]]></note></R>";
    assert_int_equal(xml_read(&arena, str_from(text), &root, &err), 0);
    assert_true(str_eq(root->name, STR("R")));
    const struct xml_node *item = xml_at(root, "set.item");
    assert_true(str_eq(xml_text(item, "id"), STR("i-1")));
    item = xml_next(item);
    assert_true(str_eq(xml_text(item, "id"), STR("i-<2A")));
    assert_int_equal(xml_text(item, "empty").len, 0);
    assert_null(xml_next(item));
    assert_null(xml_at(root, "set.none.id"));
    assert_int_equal(xml_text(NULL, "set").len, 0);
    assert_true(str_eq(xml_text(root, "note"), STR("a<d>")));
    assert_true(str_eq(xml_text(root, "note.b"), STR("c")));
}

static void refuses(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text, *says;
    } rows[] = {
        { "nothing", "", "no element" },
        { "a proxy's page", "<html><br></html>", "mismatched" },
        { "half a reply", "<a><b>1</b>", "no element" },
        { "two documents", "<a/><b/>", "junk" },
        { "entities that grow",
          "<!DOCTYPE a [<!ENTITY b \"bbbbbbbb\"><!ENTITY c \"&b;&b;&b;&b;\">]><a>&c;&c;</a>",
          "document type" },
        { "a file from outside",
          "<!DOCTYPE a [<!ENTITY b SYSTEM \"file:///etc/passwd\">]><a>&b;</a>", "document type" },
        { "a type from outside", "<!DOCTYPE a SYSTEM \"http://127.0.0.1:1/a.dtd\"><a/>",
          "document type" },
        { "an entity that is not declared", "<a>&b;</a>", "undefined entity" },
        { "bytes that are no UTF-8", "<a>\xff</a>", "not well-formed" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(arena_fini) struct arena arena;
        arena_init(&arena, BYTES);
        struct err err = { 0 };
        struct xml_node *root = NULL;
        int rc = xml_read(&arena, str_from(rows[i].text), &root, &err);
        if (rc != -EINVAL || root || !strstr(err.text, rows[i].says))
            fail_msg("%s: %d, %s", rows[i].why, rc, err.text);
    }
}

static void keeps_its_bounds(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf deep = { 0 }, wide = { 0 };
    struct xml_node *root = NULL;
    for (int i = 0; i < XML_DEPTH_MAX + 1; i++)
        buf_text(&deep, "<a>");
    buf_text(&wide, "<a>");
    for (int i = 0; i < XML_NODES_MAX; i++)
        buf_text(&wide, "<b/>");
    buf_text(&wide, "</a>");
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, (size_t)64 << 20);
    assert_int_equal(xml_read(&arena, buf_view(&deep), &root, NULL), -E2BIG);
    assert_int_equal(xml_read(&arena, buf_view(&wide), &root, NULL), -E2BIG);
    arena_fini(&arena);
    arena_init(&arena, 4096);
    assert_int_equal(xml_read(&arena, buf_view(&wide), &root, NULL), -ENOMEM);
    assert_null(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_paths_texts_and_siblings),
        cmocka_unit_test(refuses),
        cmocka_unit_test(keeps_its_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
