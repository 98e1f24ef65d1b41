"""otlp_peer.py - reads a request of t_trace_context from stdin with OpenTelemetry's own protobuf classes.

OTLP/JSON has hex ids where the protobuf mapping has base64: they are converted, as collectors do. Every other
field must be known and of the right type: an unknown one is an error.
"""
import base64
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def to_base64(text):
    return base64.b64encode(bytes.fromhex(text)).decode()


body = json.load(sys.stdin)
for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]:
    for name in ("traceId", "spanId", "parentSpanId"):
        span[name] = to_base64(span[name])
request = json_format.ParseDict(body, ExportTraceServiceRequest(), ignore_unknown_fields=False)
span = request.resource_spans[0].scope_spans[0].spans[0]
assert span.trace_id.hex() == "4bf92f3577b34da6a3ce929d0e0e4736", span.trace_id.hex()
assert span.span_id.hex() == span.parent_span_id.hex() == "00f067aa0ba902b7"
assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1000, 2000)
assert (span.kind, span.name, span.trace_state, span.dropped_events_count) == (3, "n", "a=b", 3)
assert (span.status.code, span.status.message) == (2, "p")
values = {a.key: a.value for a in span.attributes}
assert values["s"].string_value == "x" and values["i"].int_value == -5
assert values["d"].double_value == 0.25 and values["b"].bool_value
assert values["l"].array_value.values[0].string_value == "stop"
event = span.events[0]
assert (event.name, event.time_unix_nano, event.attributes[0].value.int_value) == ("e", 3000, 7)
