/* kube_config.h - finds the address of a Kubernetes cluster and the credentials for it.
 *
 * Layer:    base/io/kube (base/core, config/config_tree.h, file)
 * Threads:  read-only once loaded; kube_config_load reads files and so belongs to a role's start
 * Lifetime: all texts live until kube_config_free
 * Order:    a path that is given; KUBECONFIG, whose files are merged, the first that names something
 *           wins; the files of a pod's service account; ~/.kube/config
 * Rules:    (1) an error names file, line, entry and field
 *           (2) a field that is misspelt is refused; other unknown fields are ignored, as newer
 *               versions of the format may have them
 *           (3) a server without a verified certificate is refused unless the caller allows it; plain
 *               http is for loopback, as of `kubectl proxy`
 *           (4) what would silently be another identity is refused: impersonation, basic
 *               authentication, auth-provider
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/err.h"
#include "base/core/own.h"

#define KUBE_CONFIG_FILES_MAX 16 /* in KUBECONFIG */
#define KUBE_PEM_BYTES_MAX ((size_t)1 << 20)
#define KUBE_TOKEN_BYTES_MAX ((size_t)64 << 10)
#define KUBE_EXEC_ARGS_MAX 128
#define KUBE_POD_FOLDER "/var/run/secrets/kubernetes.io/serviceaccount"

struct kube_source {
    const char *path;   /* a kubeconfig; NULL: see Order */
    struct str context; /* empty: current-context */
    const char *const
        *environ;           /* NULL-terminated NAME=value: KUBECONFIG, HOME, KUBERNETES_SERVICE_* */
    const char *pod_folder; /* NULL: KUBE_POD_FOLDER */
    bool insecure;          /* accept a server whose certificate is not verified, and http */
};

struct kube_material { /* PEM text, or a file with it that may change; neither: none */
    struct str pem, path;
};

struct kube_exec { /* a program that prints an ExecCredential */
    struct str api_version;
    struct str install_hint;
    /* NULL-terminated; argv[0] is an absolute path, or a name to search in PATH. */
    const char **argv;
    const char **env;  /* NULL-terminated NAME=value, beside our environment */
    bool cluster_info; /* the program is told the cluster */
};

struct kube_config {
    struct arena arena;
    struct str source;   /* what it was read from, for sentences and logs */
    struct str context;  /* empty: of a pod */
    struct str server;   /* https://host[:port][/path], without a slash at the end */
    struct str tls_name; /* to verify instead of the server's host; empty: that */
    struct str proxy;    /* http://...; empty: none */
    struct str ns;       /* of the context or the pod; "default" when it names none */
    bool insecure;
    struct kube_material ca, certificate, key;
    struct str token, token_path;
    struct kube_exec *exec; /* NULL: none */
};

/* On success *ret is the caller's to free. -ENOENT: there is no configuration; -EINVAL: a field is wrong. */
int kube_config_load(const struct kube_source *source, struct kube_config **ret, struct err *err);
void kube_config_free(struct kube_config *c);
CLEANUP_FREEP(kube_config, struct kube_config)

/* Reads one kubeconfig from text, as kube_config_load does with the only file; `name` is for sentences and
 * the folder of relative paths. */
int kube_config_parse(struct str text, const char *name, struct str context, bool insecure,
                      struct kube_config **ret, struct err *err);

/* Decodes base64 with padding, line breaks skipped, into an arena. -EINVAL, -ENOMEM. */
int kube_base64(struct str text, struct arena *arena, struct str *ret);
