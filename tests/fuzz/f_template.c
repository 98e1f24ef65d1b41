/* f_template.c - compiles any template and renders it over any inputs: it is refused, fails or renders
 * within its bounds.
 *
 * The input is the template and, behind a NUL byte, the messages as JSON (without it, fixed ones). */
#include "base/text/chat_template.h"
#include "tests/fuzz/fuzz.h"

const struct fuzz_cost fuzz_cost = { 3000000, 1000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    static const struct chat_limits limits = { .steps_max = 20000,
                                               .depth_max = 200,
                                               .output_bytes_max = 1 << 18,
                                               .memory_bytes_max = 8 << 20 };
    static const struct str usual =
        STR("[{\"role\": \"user\", \"content\": \"Hi \\ud83e\\udd99\", \"list\": [3, 1.5, null]},"
            " {\"role\": \"assistant\", \"content\": \"<|x|> a b\", \"d\": {\"k\": {\"z\": []}}}]");
    struct str source = str_of(data, len), messages = usual;
    const char *nul = len > 0 ? memchr(data, 0, len) : NULL;
    if (nul) {
        source.len = (size_t)(nul - source.data);
        messages = str_of(nul + 1, len - source.len - 1);
    }
    CLEANUP(chat_template_freep) struct chat_template *t = NULL;
    CLEANUP(chat_output_fini) struct chat_output out = { 0 };
    struct err err = { 0 };
    int rc = chat_template_compile(source, &t, &err);
    must(rc == 0 || err.text[0] != '\0');
    if (rc < 0) return;
    struct chat_inputs in = { .messages = messages,
                              .tools = STR("[{\"type\": \"function\", \"n\": 1}]"),
                              .kwargs = STR("{\"x\": \"y\"}"),
                              .bos_token = STR("<s>") };
    rc = chat_template_render(t, &in, &limits, &out, &err);
    must(rc == 0 || rc == -EPROTO || err.text[0] != '\0');
    if (rc < 0) return;
    must(out.text.len <= limits.output_bytes_max);
    must(str_utf8_valid(buf_view(&out.text)));
    size_t end = 0;
    for (size_t i = 0; i < out.content.count; i++) {
        must(out.content.data[i].start >= end);
        end = out.content.data[i].start + out.content.data[i].len;
    }
    must(end <= out.text.len);
}
