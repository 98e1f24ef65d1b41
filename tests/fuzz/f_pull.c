/* f_pull.c - reads any text as a URL for `muster pull`, a line end, and the listing of a hub's repository or of a
 * store's folder. What is chosen of it can be written below a folder, and has a URL of the hub's or the store's own. */
#include "base/core/own.h"
#include "cli/pull/pull_store.h"
#include "tests/fuzz/fuzz.h"

const struct fuzz_cost fuzz_cost = { 4000000, 2000 };

static void of_store(const struct pull_url *u, struct str xml)
{
    CLEANUP(pull_listing_fini) struct pull_listing l = { 0 };
    CLEANUP(buf_fini) struct buf url = { 0 };
    CLEANUP(buf_fini) struct buf next = { 0 };
    const struct pull_store_place at = { STR("http://s"), STR("r") };
    must(pull_store_object_url(u, &at, (struct str){ 0 }, &url) == 0);
    must(str_starts(buf_view(&url), STR("http://s/")) && !memchr(url.data, '?', url.len));
    if (!u->folder || pull_store_add(&l, u, xml, &next, NULL) < 0) return;
    for (uint32_t i = 0; i < l.count; i++)
        must(pull_name_is_safe(l.items[i].name));
    buf_clear(&url);
    must(pull_store_list_url(u, &at, buf_view(&next), &url) == 0);
    for (size_t i = 0; i < url.len; i++)
        must(url.data[i] > ' ' && url.data[i] <= '~');
}

void fuzz_one(const uint8_t *data, size_t len)
{
    CLEANUP(pull_listing_fini) struct pull_listing l = { 0 };
    CLEANUP(buf_fini) struct buf url = { 0 };
    struct str rest = str_of(data, len), next, hub = STR("https://hub");
    struct str text = str_cut(&rest, '\n');
    struct pull_url u;
    if (pull_next_page(text, hub, &next, NULL) == 0 && next.len > 0)
        must(str_starts(next, STR("https://hub/")));
    if (pull_url_parse(text, &u, NULL) < 0) return;
    must(pull_name_is_safe(str_from(u.name)) && !strchr(u.name, '/'));
    if (u.store != PULL_STORE_NONE) of_store(&u, rest);
    if (!u.hub || pull_listing_add(&l, rest, NULL) < 0 || pull_listing_choose(&l, &u, NULL) < 0)
        return;
    must(l.count > 0 && l.count <= PULL_FILES_MAX);
    for (uint32_t i = 0; i < l.count; i++) {
        must(pull_name_is_safe(l.items[i].name));
        must(i == 0 || str_cmp(l.items[i - 1].name, l.items[i].name) < 0);
        must(pull_hub_file_url(hub, &u, STR("commit"), l.items[i].name, &url) == 0);
        must(str_find(buf_view(&url), STR("/../")) == SIZE_MAX);
        buf_clear(&url);
    }
}
