/* cmd_manifests.c - `muster manifests`: print the objects of the Helm chart, for clusters without Helm.
 *
 * The chart's templates need Helm's engine, so the program has them as Helm renders them with the chart's
 * defaults, and replaces three words: namespace, image, secret. A choice among more values would be a second
 * chart. */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/command.h"
#include "cli/manifests.h"

#include <string.h>
#include <sys/random.h>

#define NAMESPACE_BYTES_MAX 63
#define IMAGE_BYTES_MAX 512
#define SEPARATOR "---\n"

static int check_namespace(struct str ns, struct err *err)
{
    bool good = ns.len > 0 && ns.len <= NAMESPACE_BYTES_MAX;
    for (size_t i = 0; i < ns.len && good; i++) {
        char c = ns.data[i];
        bool inner = c == '-' && i > 0 && i + 1 < ns.len;
        good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || inner;
    }
    if (good) return 0;
    return err_set(err, -EINVAL,
                   "--namespace '" STR_FMT "': want 1 to %d lower-case letters, digits and '-'",
                   STR_ARG(ns), NAMESPACE_BYTES_MAX);
}

/* A reference stands unquoted in the YAML: what could end it there is refused. */
static int check_image(struct str image, struct err *err)
{
    static const char odd[] = "._-/:@";
    bool good = image.len > 0 && image.len <= IMAGE_BYTES_MAX;
    for (size_t i = 0; i < image.len && good; i++) {
        char c = image.data[i];
        bool alphanumeric =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        good = alphanumeric || (i > 0 && i + 1 < image.len && strchr(odd, c));
    }
    if (good) return 0;
    return err_set(err, -EINVAL,
                   "--image '" STR_FMT "': want REGISTRY/NAME:TAG or NAME@sha256:DIGEST",
                   STR_ARG(image));
}

/* Appends `text` with each word of ours replaced by its value. */
static void put(struct str text, const struct manifests *m, struct buf *out)
{
    const struct {
        struct str word, value;
    } words[] = {
        { STR("namespace-of-muster"), m->ns },
        { STR("image-of-muster"), m->image },
        { STR("secret-of-muster"), m->secret },
    };
    while (text.len > 0) {
        size_t first = SIZE_MAX, which = 0;
        for (size_t i = 0; i < COUNT_OF(words); i++) {
            size_t at = str_find(text, words[i].word);
            if (at < first) first = at, which = i;
        }
        if (first == SIZE_MAX) break;
        buf_append(out, text.data, first);
        buf_str(out, words[which].value);
        size_t skip = first + words[which].word.len;
        text = str_of(text.data + skip, text.len - skip);
    }
    buf_str(out, text);
}

int manifests_write(const struct manifests *m, struct buf *out, struct err *err)
{
    int rc = check_namespace(m->ns, err);
    if (rc == 0) rc = check_image(m->image, err);
    if (rc < 0) return rc;
    struct str rest = manifests_text();
    rest.len -= min_size(rest.len, strlen("\n")); /* the separator below ends each object */
    while (rest.len > 0) {
        size_t end = str_find(rest, STR("\n" SEPARATOR));
        struct str object = str_of(rest.data, end == SIZE_MAX ? rest.len : end);
        size_t skip = end == SIZE_MAX ? rest.len : end + strlen("\n" SEPARATOR);
        rest = str_of(rest.data + skip, rest.len - skip);
        bool is_secret = str_find(object, STR("kind: Secret\n")) != SIZE_MAX;
        if (is_secret && m->secret.len == 0) continue;
        put(object, m, out);
        buf_text(out, rest.len > 0 ? "\n" SEPARATOR : "\n");
    }
    return out->rc < 0 ? err_set(err, out->rc, "no memory for the objects") : 0;
}

struct manifests_options {
    struct str ns, image;
    bool keep_secret;
};

#define AT(member) .offset = offsetof(struct manifests_options, member)

// clang-format off
static const struct config_field rows[] = {
    { .name = "namespace", .letter = 'n', .type = CONFIG_TEXT, .default_text = "muster", AT(ns),
      .about = "Namespace of the objects; it must exist." },
    { .name = "image", .type = CONFIG_TEXT, .default_text = "muster:" MUSTER_VERSION, AT(image),
      .about = "Image of all parts." },
    { .name = "keep_secret", .type = CONFIG_BOOL, .default_text = "false", AT(keep_secret),
      .about = "Leave the fleet's secret out, of which each run makes a new one: the cluster has it." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct manifests_options, rows);
static const struct opt_command usage = {
    .name = "muster manifests",
    .about = "Print the objects of the Helm chart with its defaults, for kubectl apply -f -.",
    .options = &record,
    .notes =
        "To serve something else, change muster.yaml and the Pod template in the ConfigMap, then "
        "restart\nthe controller; for everything else there is the chart, helm/muster.\n",
};

static int manifests(const void *options, struct err *err)
{
    const struct manifests_options *o = options;
    CLEANUP(buf_fini) struct buf out = { 0 };
    uint8_t bytes[FILE_SECRET_BYTES];
    char hex[2 * FILE_SECRET_BYTES + 1] = "";
    if (!o->keep_secret) {
        if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
            return err_set(err, -EIO, "the system gives no random bytes");
        hex_from(bytes, sizeof bytes, hex);
    }
    const struct manifests m = { o->ns, o->image, str_from(hex) };
    int rc = manifests_write(&m, &out, err);
    if (rc == 0) rc = command_print(&out, err);
    if (out.data) explicit_bzero(out.data, out.len);
    explicit_bzero(bytes, sizeof bytes);
    explicit_bzero(hex, sizeof hex);
    return rc;
}

static int run(int argc, char *const *argv)
{
    struct manifests_options options;
    return command_run(&usage, argc, argv, &options, manifests);
}

const struct command command_manifests = {
    .name = "manifests",
    .group = "Configure",
    .about = "print the objects of a Kubernetes installation",
    .run = run,
};
