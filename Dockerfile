# Dockerfile - the content of scripts/image.sh's image, for those who have a container daemon.
#
#     docker build -t muster --build-arg SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" \
#         --build-arg REVISION="$(git rev-parse HEAD)" .
#
# MODEL=--no-model leaves the tiny model out. BASE must be Debian or Ubuntu: its libraries go into the image. The
# digest differs from scripts/image.sh's, because a daemon writes layers in its own way.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
ARG SOURCE_DATE_EPOCH=0
ARG MODEL=
WORKDIR /src
COPY . .
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends bash >/dev/null && \
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} scripts/image.sh --root /image --build /build ${MODEL}

FROM scratch
ARG REVISION=
COPY --from=build /image/ /
COPY --from=build --chown=65532:65532 /image/var/lib/muster /var/lib/muster
LABEL org.opencontainers.image.title="muster" \
      org.opencontainers.image.description="Serves language models on a fleet that grows and shrinks with its load" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="Muster" \
      org.opencontainers.image.revision="${REVISION}"
ENV PATH=/usr/bin HOME=/var/lib/muster SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
WORKDIR /var/lib/muster
EXPOSE 8080 8090 8100 8200
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/muster"]
CMD ["--help"]
