/* kube_config.c - reads kubeconfig files and a pod's files into one struct.
 *
 * Each file becomes a tree of the configuration's own YAML reader, so size, depth, repeated keys and
 * aliases are bounded there. The trees are not merged: a name is looked up in one file after another, which
 * gives the same result ("the first file wins") and keeps file and line for the sentences. */
#include "base/io/kube/kube_config.h"

#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/io/config/config_tree.h"
#include "base/io/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MEMORY_BYTES_MAX ((size_t)32 << 20)
#define TYPO_MAX 64 /* fields of one table */

struct doc { /* one file */
    const char *path;
    struct str folder; /* for relative paths */
    const struct config_node *root;
};

struct loader {
    struct kube_config *c;
    struct doc docs[KUBE_CONFIG_FILES_MAX];
    size_t doc_count;
    bool insecure;
    struct err *err;
};

struct entry { /* a named cluster, user or context */
    const struct doc *doc;
    const struct config_node *body; /* a mapping */
    const char *kind;
    struct str name;
};

/* ---- the tree ---- */

static const struct config_node *child(const struct config_node *map, const char *key)
{
    for (const struct config_node *n = map->first; n; n = n->next)
        if (str_eq(n->key, str_from(key))) return n;
    return NULL;
}

static bool is_null(const struct config_node *n)
{
    return n->kind == CONFIG_NODE_SCALAR && n->plain &&
           (n->text.len == 0 || str_eq(n->text, STR("null")) || str_eq(n->text, STR("~")));
}

static int fault(const struct loader *l, const struct entry *e, const struct config_node *n,
                 const char *field, const char *problem)
{
    return err_set(l->err, -EINVAL, "%s:%u: %s \"" STR_FMT "\": %s %s", e->doc->path,
                   n ? n->line : e->body->line, e->kind, STR_ARG(e->name), field, problem);
}

static int no_memory(const struct loader *l)
{
    return err_set(l->err, -ENOMEM, "no memory for the kubeconfig");
}

/* Finds a field; *ret is NULL when it is absent or null. -EINVAL when it is of another kind. */
static int field(const struct loader *l, const struct entry *e, const char *name,
                 enum config_node_kind kind, const struct config_node **ret)
{
    static const char *const wanted[] = { [CONFIG_NODE_SCALAR] = "must be text",
                                          [CONFIG_NODE_MAP] = "must be a mapping",
                                          [CONFIG_NODE_LIST] = "must be a list" };
    const struct config_node *n = child(e->body, name);
    *ret = n && !is_null(n) ? n : NULL;
    if (*ret && n->kind != kind) return fault(l, e, n, name, wanted[kind]);
    return 0;
}

static int text_field(const struct loader *l, const struct entry *e, const char *name,
                      struct str *ret)
{
    const struct config_node *n;
    int rc = field(l, e, name, CONFIG_NODE_SCALAR, &n);
    if (rc < 0 || !n) return rc;
    for (size_t i = 0; i < n->text.len; i++)
        if ((unsigned char)n->text.data[i] < ' ' && n->text.data[i] != '\n' &&
            n->text.data[i] != '\r')
            return fault(l, e, n, name, "has a control character");
    *ret = n->text;
    return 0;
}

static int bool_field(const struct loader *l, const struct entry *e, const char *name, bool *ret)
{
    const struct config_node *n;
    int rc = field(l, e, name, CONFIG_NODE_SCALAR, &n);
    if (rc < 0 || !n) return rc;
    bool is_true = str_eq(n->text, STR("true"));
    if (!is_true && !str_eq(n->text, STR("false")))
        return fault(l, e, n, name, "must be true or false");
    *ret = is_true;
    return 0;
}

/* Refuses a field that looks like a known one and is not. `names` ends with NULL. */
static int check_typos(const struct loader *l, const struct entry *e, const char *const *names)
{
    size_t count = 0;
    while (names[count])
        count++;
    for (const struct config_node *n = e->body->first; n; n = n->next) {
        bool known = false;
        for (size_t i = 0; i < count; i++)
            known |= str_eq(n->key, str_from(names[i]));
        char word[TYPO_MAX], problem[128];
        if (known || n->key.len >= sizeof word) continue;
        snprintf(word, sizeof word, STR_FMT, STR_ARG(n->key));
        const char *near = str_nearest(n->key, names, count);
        if (!near) continue;
        snprintf(problem, sizeof problem, "is unknown; did you mean %s?", near);
        return fault(l, e, n, word, problem);
    }
    return 0;
}

/* ---- values ---- */

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int kube_base64(struct str text, struct arena *arena, struct str *ret)
{
    char *out = arena_alloc(arena, text.len / 4 * 3 + 4);
    size_t len = 0, digits = 0, pads = 0;
    uint32_t bits = 0;
    if (!out) return -ENOMEM;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '\n' || c == '\r') continue;
        int digit = base64_digit(c);
        if (c == '=')
            pads++;
        else if (digit < 0 || pads > 0)
            return -EINVAL;
        bits = bits << 6 | (uint32_t)(digit < 0 ? 0 : digit);
        if (++digits % 4 != 0) continue;
        out[len++] = (char)(bits >> 16);
        out[len++] = (char)(bits >> 8);
        out[len++] = (char)bits;
    }
    if (digits % 4 != 0 || pads > 2) return -EINVAL;
    *ret = str_of(out, len - pads);
    return 0;
}

static int path_join(const struct loader *l, struct str folder, struct str path, struct str *ret)
{
    bool absolute = path.len > 0 && path.data[0] == '/';
    CLEANUP(buf_fini) struct buf joined = { 0 };
    if (!absolute && folder.len > 0) buf_printf(&joined, STR_FMT "/", STR_ARG(folder));
    buf_str(&joined, path);
    *ret = joined.rc == 0 ? arena_str(&l->c->arena, buf_view(&joined)) : (struct str){ 0 };
    return ret->data ? 0 : no_memory(l);
}

/* Reads a certificate or key, given as NAME-data or as the file NAME. The data come first, as with
 * kubectl. */
static int material(const struct loader *l, const struct entry *e, const char *name,
                    struct kube_material *ret)
{
    char data_name[64];
    struct str data = { 0 }, path = { 0 };
    snprintf(data_name, sizeof data_name, "%s-data", name);
    int rc = text_field(l, e, data_name, &data);
    if (rc == 0) rc = text_field(l, e, name, &path);
    if (rc < 0) return rc;
    if (data.len == 0) return path.len > 0 ? path_join(l, e->doc->folder, path, &ret->path) : 0;
    rc = kube_base64(data, &l->c->arena, &ret->pem);
    if (rc == -ENOMEM) return no_memory(l);
    if (rc < 0) return fault(l, e, child(e->body, data_name), data_name, "is not base64");
    if (str_find(ret->pem, STR("-----BEGIN ")) == SIZE_MAX)
        return fault(l, e, child(e->body, data_name), data_name, "holds no PEM");
    return 0;
}

/* ---- server ---- */

static bool is_loopback(struct str host)
{
    return str_starts(host, STR("127.")) || str_eq(host, STR("localhost")) ||
           str_eq(host, STR("[::1]"));
}

static int server_field(struct loader *l, const struct entry *e)
{
    struct kube_config *c = l->c;
    struct str url = { 0 };
    int rc = text_field(l, e, "server", &url);
    if (rc < 0) return rc;
    const struct config_node *n = child(e->body, "server");
    if (url.len == 0) return fault(l, e, n, "server", "is missing");
    while (url.len > 8 && url.data[url.len - 1] == '/') /* not of https:// */
        url.len--;
    bool plain = str_starts(url, STR("http://"));
    if (!plain && !str_starts(url, STR("https://")))
        return fault(l, e, n, "server", "must begin with https://");
    size_t scheme = plain ? 7 : 8;
    struct str rest = str_of(url.data + scheme, url.len - scheme);
    if (memchr(rest.data, '@', rest.len) || memchr(rest.data, '?', rest.len) ||
        memchr(rest.data, '#', rest.len))
        return fault(l, e, n, "server", "may hold only scheme, host, port and path");
    struct str host = str_cut(&rest, '/');
    if (host.len > 0 && host.data[0] != '[') host = str_cut(&host, ':');
    if (host.len == 0) return fault(l, e, n, "server", "has no host");
    if (host.data[0] == '[') host.len = min_size(host.len, str_find(host, STR("]")) + 1);
    if (plain && !l->insecure && !is_loopback(host))
        return fault(l, e, n, "server",
                     "is plain http, which would show the credentials to the network: use https");
    c->server = arena_str(&c->arena, url);
    return c->server.data ? 0 : no_memory(l);
}

static int load_cluster(struct loader *l, const struct entry *e)
{
    static const char *const names[] = { "server",
                                         "tls-server-name",
                                         "insecure-skip-tls-verify",
                                         "certificate-authority",
                                         "certificate-authority-data",
                                         "proxy-url",
                                         "disable-compression",
                                         "extensions",
                                         NULL };
    struct kube_config *c = l->c;
    int rc = check_typos(l, e, names);
    if (rc == 0) rc = server_field(l, e);
    if (rc == 0) rc = text_field(l, e, "tls-server-name", &c->tls_name);
    if (rc == 0) rc = text_field(l, e, "proxy-url", &c->proxy);
    if (rc == 0) rc = bool_field(l, e, "insecure-skip-tls-verify", &c->insecure);
    if (rc == 0) rc = material(l, e, "certificate-authority", &c->ca);
    if (rc < 0) return rc;
    if (!c->insecure) return 0;
    const struct config_node *n = child(e->body, "insecure-skip-tls-verify");
    if (!l->insecure)
        return fault(l, e, n, "insecure-skip-tls-verify",
                     "is true: anybody on the way could pose as the cluster. Give "
                     "certificate-authority-data, or allow it expressly");
    if (c->ca.pem.len > 0 || c->ca.path.len > 0)
        return fault(l, e, n, "insecure-skip-tls-verify", "contradicts certificate-authority");
    return 0;
}

/* ---- users ---- */

/* Fills argv from command and args. A command with a slash is relative to the kubeconfig's folder. */
static int exec_argv(const struct loader *l, const struct entry *e, struct kube_exec *x)
{
    struct str command = { 0 };
    const struct config_node *args;
    int rc = text_field(l, e, "command", &command);
    if (rc == 0) rc = field(l, e, "args", CONFIG_NODE_LIST, &args);
    if (rc < 0) return rc;
    if (command.len == 0) return fault(l, e, NULL, "command", "is missing");
    if (args && args->count > KUBE_EXEC_ARGS_MAX) return fault(l, e, args, "args", "are too many");
    if (memchr(command.data, '/', command.len))
        rc = path_join(l, e->doc->folder, command, &command);
    if (rc < 0) return rc;
    x->argv = arena_array(&l->c->arena, 2 + (args ? args->count : 0), sizeof *x->argv);
    if (!x->argv) return no_memory(l);
    size_t count = 0;
    x->argv[count++] = command.data;
    for (const struct config_node *n = args ? args->first : NULL; n; n = n->next) {
        if (n->kind != CONFIG_NODE_SCALAR || memchr(n->text.data, 0, n->text.len))
            return fault(l, e, n, "args", "must be texts");
        x->argv[count++] = n->text.data;
    }
    return 0;
}

static int exec_env(const struct loader *l, const struct entry *e, struct kube_exec *x)
{
    const struct config_node *list;
    int rc = field(l, e, "env", CONFIG_NODE_LIST, &list);
    if (rc < 0) return rc;
    if (list && list->count > KUBE_EXEC_ARGS_MAX) return fault(l, e, list, "env", "is too long");
    x->env = arena_array(&l->c->arena, 1 + (list ? list->count : 0), sizeof *x->env);
    if (!x->env) return no_memory(l);
    size_t count = 0;
    for (const struct config_node *n = list ? list->first : NULL; n; n = n->next) {
        const struct config_node *name = n->kind == CONFIG_NODE_MAP ? child(n, "name") : NULL;
        const struct config_node *value = n->kind == CONFIG_NODE_MAP ? child(n, "value") : NULL;
        if (!name || name->kind != CONFIG_NODE_SCALAR || name->text.len == 0 ||
            memchr(name->text.data, '=', name->text.len) ||
            memchr(name->text.data, 0, name->text.len) ||
            (value &&
             (value->kind != CONFIG_NODE_SCALAR || memchr(value->text.data, 0, value->text.len))))
            return fault(l, e, n, "env", "must be a list of name and value");
        CLEANUP(buf_fini) struct buf text = { 0 };
        buf_printf(&text, STR_FMT "=" STR_FMT, STR_ARG(name->text),
                   STR_ARG(value ? value->text : STR("")));
        struct str kept = text.rc == 0 ? arena_str(&l->c->arena, buf_view(&text)) : STR("");
        if (text.rc < 0 || !kept.data) return no_memory(l);
        x->env[count++] = kept.data;
    }
    return 0;
}

static int load_exec(struct loader *l, const struct entry *user)
{
    static const char *const names[] = {
        "apiVersion",         "command", "args", "env", "installHint", "interactiveMode",
        "provideClusterInfo", NULL
    };
    struct entry e = *user;
    struct str mode = STR("IfAvailable");
    int rc = field(l, user, "exec", CONFIG_NODE_MAP, &e.body);
    if (rc < 0 || !e.body) return rc;
    e.kind = "exec of user";
    struct kube_exec *x = arena_alloc(&l->c->arena, sizeof *x);
    if (!x) return no_memory(l);
    rc = check_typos(l, &e, names);
    if (rc == 0) rc = text_field(l, &e, "apiVersion", &x->api_version);
    if (rc == 0) rc = text_field(l, &e, "installHint", &x->install_hint);
    if (rc == 0) rc = text_field(l, &e, "interactiveMode", &mode);
    if (rc == 0) rc = bool_field(l, &e, "provideClusterInfo", &x->cluster_info);
    if (rc == 0) rc = exec_argv(l, &e, x);
    if (rc == 0) rc = exec_env(l, &e, x);
    if (rc < 0) return rc;
    if (!str_eq(x->api_version, STR("client.authentication.k8s.io/v1")) &&
        !str_eq(x->api_version, STR("client.authentication.k8s.io/v1beta1")))
        return fault(l, &e, child(e.body, "apiVersion"), "apiVersion",
                     "must be client.authentication.k8s.io/v1 or v1beta1");
    if (str_eq(mode, STR("Always")))
        return fault(l, &e, child(e.body, "interactiveMode"), "interactiveMode",
                     "is Always, and there is no terminal here");
    if (!str_eq(mode, STR("Never")) && !str_eq(mode, STR("IfAvailable")))
        return fault(l, &e, child(e.body, "interactiveMode"), "interactiveMode",
                     "must be Never, IfAvailable or Always");
    l->c->exec = x;
    return 0;
}

/* Refuses what would be ignored and mean another identity. */
static int refuse_unsupported(const struct loader *l, const struct entry *e)
{
    static const struct {
        const char *name, *why;
    } rows[] = {
        { "username", "is basic authentication, which Kubernetes removed in 1.19" },
        { "password", "is basic authentication, which Kubernetes removed in 1.19" },
        { "auth-provider", "was removed from Kubernetes in 1.26: use exec" },
        { "as", "is impersonation, which is not supported: give the user its own rights" },
        { "as-uid", "is impersonation, which is not supported: give the user its own rights" },
        { "as-groups", "is impersonation, which is not supported: give the user its own rights" },
        { "as-user-extra",
          "is impersonation, which is not supported: give the user its own rights" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct config_node *n = child(e->body, rows[i].name);
        bool set = n && !is_null(n) && (n->kind != CONFIG_NODE_SCALAR || n->text.len > 0) &&
                   (n->kind == CONFIG_NODE_SCALAR || n->count > 0);
        if (set) return fault(l, e, n, rows[i].name, rows[i].why);
    }
    return 0;
}

static int load_user(struct loader *l, const struct entry *e)
{
    static const char *const names[] = { "client-certificate",
                                         "client-certificate-data",
                                         "client-key",
                                         "client-key-data",
                                         "token",
                                         "tokenFile",
                                         "exec",
                                         "username",
                                         "password",
                                         "auth-provider",
                                         "as",
                                         "as-uid",
                                         "as-groups",
                                         "as-user-extra",
                                         "extensions",
                                         NULL };
    struct kube_config *c = l->c;
    struct str token_file = { 0 };
    int rc = check_typos(l, e, names);
    if (rc == 0) rc = refuse_unsupported(l, e);
    if (rc == 0) rc = material(l, e, "client-certificate", &c->certificate);
    if (rc == 0) rc = material(l, e, "client-key", &c->key);
    if (rc == 0) rc = text_field(l, e, "token", &c->token);
    if (rc == 0) rc = text_field(l, e, "tokenFile", &token_file);
    if (rc == 0 && token_file.len > 0)
        rc = path_join(l, e->doc->folder, token_file, &c->token_path);
    if (rc == 0) rc = load_exec(l, e);
    if (rc < 0) return rc;
    c->token = str_trim(c->token);
    bool has_certificate = c->certificate.pem.len || c->certificate.path.len;
    bool has_key = c->key.pem.len || c->key.path.len;
    if (has_certificate != has_key)
        return fault(l, e, NULL, has_key ? "client-certificate" : "client-key",
                     has_key ? "is missing beside client-key"
                             : "is missing beside client-certificate");
    if (c->exec && (has_certificate || c->token.len || c->token_path.len))
        return fault(l, e, child(e->body, "exec"), "exec",
                     "stands beside a token or certificate: only one can be meant");
    return 0;
}

/* ---- files ---- */

/* Finds the entry NAME in the list LIST of the first file that has it; each item holds it under KEY. */
static int entry_find(const struct loader *l, const char *list, const char *key, struct str name,
                      struct entry *ret)
{
    for (size_t i = 0; i < l->doc_count; i++) {
        const struct doc *d = &l->docs[i];
        const struct config_node *all = child(d->root, list);
        if (!all || is_null(all)) continue;
        if (all->kind != CONFIG_NODE_LIST)
            return err_set(l->err, -EINVAL, "%s:%u: %s must be a list", d->path, all->line, list);
        for (const struct config_node *n = all->first; n; n = n->next) {
            const struct config_node *n_name = n->kind == CONFIG_NODE_MAP ? child(n, "name") : NULL;
            if (!n_name || n_name->kind != CONFIG_NODE_SCALAR)
                return err_set(l->err, -EINVAL, "%s:%u: an item of %s has no name", d->path,
                               n->line, list);
            if (!str_eq(n_name->text, name)) continue;
            *ret = (struct entry){ d, child(n, key), key, name };
            if (ret->body && ret->body->kind == CONFIG_NODE_MAP) return 0;
            return err_set(l->err, -EINVAL, "%s:%u: %s \"" STR_FMT "\" has no mapping %s", d->path,
                           n->line, key, STR_ARG(name), key);
        }
    }
    return err_set(l->err, -EINVAL, STR_FMT ": there is no %s \"" STR_FMT "\"",
                   STR_ARG(l->c->source), key, STR_ARG(name));
}

static int doc_add(struct loader *l, const char *path, struct str text)
{
    struct config_node *root = NULL;
    if (l->doc_count == KUBE_CONFIG_FILES_MAX)
        return err_set(l->err, -E2BIG, "KUBECONFIG names more than %d files",
                       KUBE_CONFIG_FILES_MAX);
    struct str kept = arena_str(&l->c->arena, str_from(path));
    if (!kept.data) return no_memory(l);
    int rc = config_tree_parse(text, kept.data, &l->c->arena, &root, l->err);
    if (rc < 0) return rc;
    if (!root || is_null(root)) return 0; /* an empty file names nothing */
    if (root->kind != CONFIG_NODE_MAP)
        return err_set(l->err, -EINVAL, "%s:%u: a kubeconfig is a mapping", path, root->line);
    static const struct {
        const char *name, *value;
    } rows[] = { { "apiVersion", "v1" }, { "kind", "Config" } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct config_node *n = child(root, rows[i].name);
        if (n && !is_null(n) &&
            !(n->kind == CONFIG_NODE_SCALAR && str_eq(n->text, str_from(rows[i].value))))
            return err_set(l->err, -EINVAL, "%s:%u: %s must be %s", path, n->line, rows[i].name,
                           rows[i].value);
    }
    const char *slash = strrchr(kept.data, '/');
    struct str folder = slash ? str_of(kept.data, (size_t)(slash - kept.data)) : (struct str){ 0 };
    if (slash == kept.data) folder = STR("/");
    l->docs[l->doc_count++] = (struct doc){ kept.data, folder, root };
    return 0;
}

/* Resolves context, cluster and user. */
static int load_docs(struct loader *l, struct str context)
{
    struct kube_config *c = l->c;
    static const char *const names[] = { "cluster", "user", "namespace", "extensions", NULL };
    for (size_t i = 0; i < l->doc_count && context.len == 0; i++) {
        const struct config_node *n = child(l->docs[i].root, "current-context");
        if (n && n->kind != CONFIG_NODE_SCALAR)
            return err_set(l->err, -EINVAL, "%s:%u: current-context must be text", l->docs[i].path,
                           n->line);
        if (n && !is_null(n)) context = n->text;
    }
    if (context.len == 0)
        return err_set(l->err, -EINVAL, STR_FMT ": there is no current-context",
                       STR_ARG(c->source));
    struct entry e, cluster, user;
    struct str cluster_name = { 0 }, user_name = { 0 };
    int rc = entry_find(l, "contexts", "context", context, &e);
    if (rc == 0) rc = check_typos(l, &e, names);
    if (rc == 0) rc = text_field(l, &e, "cluster", &cluster_name);
    if (rc == 0) rc = text_field(l, &e, "user", &user_name);
    if (rc == 0) rc = text_field(l, &e, "namespace", &c->ns);
    if (rc == 0 && cluster_name.len == 0) rc = fault(l, &e, NULL, "cluster", "is missing");
    if (rc == 0) rc = entry_find(l, "clusters", "cluster", cluster_name, &cluster);
    if (rc == 0) rc = load_cluster(l, &cluster);
    /* A context without a user is a client without credentials: a proxy that adds them. */
    if (rc == 0 && user_name.len > 0) rc = entry_find(l, "users", "user", user_name, &user);
    if (rc == 0 && user_name.len > 0) rc = load_user(l, &user);
    if (rc < 0) return rc;
    if (c->ns.len == 0) c->ns = STR("default");
    c->context = arena_str(&c->arena, context);
    return c->context.data ? 0 : no_memory(l);
}

/* ---- a pod's files ---- */

static const char *env_get(const char *const *environ, const char *name)
{
    size_t len = strlen(name);
    for (; environ && *environ; environ++)
        if (strncmp(*environ, name, len) == 0 && (*environ)[len] == '=') return *environ + len + 1;
    return NULL;
}

static int load_pod(struct loader *l, const char *folder, const char *host, const char *port)
{
    struct kube_config *c = l->c;
    CLEANUP(buf_fini) struct buf ns = { 0 }, url = { 0 };
    char path[PATH_MAX];
    uint64_t number = 0;
    if (str_to_u64(str_from(port), &number) < 0 || number == 0 || number > UINT16_MAX)
        return err_set(l->err, -EINVAL, "KUBERNETES_SERVICE_PORT=%s is no port", port);
    struct str in = str_from(folder);
    int rc = path_join(l, in, STR("token"), &c->token_path);
    if (rc == 0) rc = path_join(l, in, STR("ca.crt"), &c->ca.path);
    if (rc < 0) return rc;
    snprintf(path, sizeof path, "%s/namespace", folder);
    rc = file_read(path, 4096, &ns, l->err);
    if (rc < 0) return rc;
    bool v6 = strchr(host, ':') && host[0] != '[';
    buf_printf(&url, v6 ? "https://[%s]:%u" : "https://%s:%u", host, (unsigned)number);
    c->server = arena_str(&c->arena, buf_view(&url));
    struct str name = buf_view(&ns);
    while (name.len > 0 && (unsigned char)name.data[name.len - 1] <= ' ')
        name.len--;
    c->ns = arena_str(&c->arena, name);
    c->source = arena_str(&c->arena, in);
    return c->server.data && c->ns.data && c->source.data ? 0 : no_memory(l);
}

/* ---- loading ---- */

static int config_new(struct kube_config **ret, struct err *err)
{
    struct kube_config *c = calloc(1, sizeof *c);
    if (!c) return err_set(err, -ENOMEM, "no memory for the kubeconfig");
    arena_init(&c->arena, MEMORY_BYTES_MAX);
    *ret = c;
    return 0;
}

void kube_config_free(struct kube_config *c)
{
    if (!c) return;
    arena_fini(&c->arena);
    free(c);
}

/* Adds the files of a list like KUBECONFIG; those that do not exist are skipped unless it is `only` one. */
static int load_files(struct loader *l, struct str list, bool only)
{
    l->c->source = arena_str(&l->c->arena, list);
    if (!l->c->source.data) return no_memory(l);
    bool any = false;
    for (struct str rest = list; rest.data;) {
        struct str one = only ? rest : str_cut(&rest, ':');
        if (only) rest = (struct str){ 0 };
        if (one.len == 0) continue;
        CLEANUP(buf_fini) struct buf text = { 0 }, path = { 0 };
        buf_str(&path, one);
        if (path.rc < 0) return no_memory(l);
        int rc = file_read(path.data, CONFIG_FILE_BYTES_MAX, &text, l->err);
        if (rc == -ENOENT && !only) continue;
        if (rc == 0) rc = doc_add(l, path.data, buf_view(&text));
        if (rc < 0) return rc;
        any = true;
    }
    if (!any)
        return err_set(l->err, -ENOENT, "KUBECONFIG=" STR_FMT ": none of these files exists",
                       STR_ARG(list));
    return 0;
}

static int load_from(struct loader *l, const struct kube_source *s)
{
    const char *list = env_get(s->environ, "KUBECONFIG");
    const char *host = env_get(s->environ, "KUBERNETES_SERVICE_HOST");
    const char *port = env_get(s->environ, "KUBERNETES_SERVICE_PORT");
    const char *home = env_get(s->environ, "HOME");
    const char *folder = s->pod_folder ? s->pod_folder : KUBE_POD_FOLDER;
    char path[PATH_MAX];
    struct stat st;
    int rc;
    if (s->path) {
        rc = load_files(l, str_from(s->path), true);
        return rc < 0 ? rc : load_docs(l, s->context);
    }
    if (list && list[0]) {
        rc = load_files(l, str_from(list), false);
        return rc < 0 ? rc : load_docs(l, s->context);
    }
    snprintf(path, sizeof path, "%s/token", folder);
    if (host && host[0] && stat(path, &st) == 0)
        return load_pod(l, folder, host, port ? port : "443");
    snprintf(path, sizeof path, "%s/.kube/config", home ? home : "");
    if (!home || stat(path, &st) != 0)
        return err_set(
            l->err, -ENOENT,
            "no Kubernetes cluster is configured: give a kubeconfig, set KUBECONFIG, or run "
            "in a pod with a service account (looked for %s/token and %s)",
            folder, home ? path : "~/.kube/config");
    rc = load_files(l, str_from(path), true);
    return rc < 0 ? rc : load_docs(l, s->context);
}

int kube_config_load(const struct kube_source *source, struct kube_config **ret, struct err *err)
{
    CLEANUP(kube_config_freep) struct kube_config *c = NULL;
    int rc = config_new(&c, err);
    if (rc < 0) return rc;
    struct loader l = { .c = c, .insecure = source->insecure, .err = err };
    rc = load_from(&l, source);
    if (rc == 0) *ret = TAKE(c);
    return rc;
}

int kube_config_parse(struct str text, const char *name, struct str context, bool insecure,
                      struct kube_config **ret, struct err *err)
{
    CLEANUP(kube_config_freep) struct kube_config *c = NULL;
    int rc = config_new(&c, err);
    if (rc < 0) return rc;
    struct loader l = { .c = c, .insecure = insecure, .err = err };
    c->source = arena_str(&c->arena, str_from(name));
    rc = c->source.data ? doc_add(&l, name, text) : no_memory(&l);
    if (rc == 0) rc = load_docs(&l, context);
    if (rc == 0) *ret = TAKE(c);
    return rc;
}
