"""The CDK app of the second distribution, which shares streamed responses.

It is in front of the same function `live`, but caches each response for a second, whatever its
Cache-Control says: so it can be seen whether a late reader streams along. Its functions hand a
header from the viewer-request to the viewer-response event.
"""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_cloudfront as cloudfront
from aws_cdk import aws_cloudfront_origins as origins

SECRET_HEADER: Final = "x-tailrace-origin"
READ_SECONDS: Final = 60

VIEWER_REQUEST: Final = """
function handler(event) {
    event.request.headers['x-smoke-sent'] = { value: event.context.requestId };
    return event.request;
}
"""
VIEWER_RESPONSE: Final = """
function handler(event) {
    const sent = event.request.headers['x-smoke-sent'];
    event.response.headers['x-smoke-seen'] = { value: sent ? sent.value : '' };
    return event.response;
}
"""


def build(app: cdk.App) -> cdk.App:
    def given(name: str) -> str:
        return str(app.node.get_context(name))

    region = given("region")
    stack = cdk.Stack(
        app,
        f"tailrace-{given('stage')}-probe",
        env=cdk.Environment(region=region),
        description="Tailrace: the second distribution of the smoke test",
    )
    distribution = cloudfront.Distribution(
        stack,
        "Probe",
        comment=stack.stack_name,
        default_behavior=cloudfront.BehaviorOptions(
            origin=origins.HttpOrigin(
                given("live_host"),
                protocol_policy=cloudfront.OriginProtocolPolicy.HTTPS_ONLY,
                connection_attempts=1,
                read_timeout=cdk.Duration.seconds(READ_SECONDS),
                custom_headers={
                    # A dynamic reference: the template has the secret's name, not its value.
                    SECRET_HEADER: cdk.SecretValue.secrets_manager(
                        given("origin_secret")
                    ).unsafe_unwrap()
                },
            ),
            viewer_protocol_policy=cloudfront.ViewerProtocolPolicy.HTTPS_ONLY,
            compress=False,
            cache_policy=cloudfront.CachePolicy(
                stack,
                "Cache",
                cache_policy_name=f"{stack.stack_name}-{region}",
                min_ttl=cdk.Duration.seconds(1),
                default_ttl=cdk.Duration.seconds(1),
                max_ttl=cdk.Duration.seconds(1),
                query_string_behavior=cloudfront.CacheQueryStringBehavior.all(),
            ),
            origin_request_policy=cloudfront.OriginRequestPolicy(
                stack,
                "Request",
                origin_request_policy_name=f"{stack.stack_name}-{region}",
                header_behavior=cloudfront.OriginRequestHeaderBehavior.deny_list(
                    "host", "x-smoke-sent"
                ),
            ),
            function_associations=[
                _associate(stack, "ViewerRequest", VIEWER_REQUEST),
                _associate(stack, "ViewerResponse", VIEWER_RESPONSE),
            ],
        ),
    )
    cdk.CfnOutput(stack, "ProbeUrl", value=f"https://{distribution.distribution_domain_name}")
    return app


def _associate(stack: cdk.Stack, event: str, code: str) -> cloudfront.FunctionAssociation:
    types = cloudfront.FunctionEventType
    return cloudfront.FunctionAssociation(
        function=cloudfront.Function(
            stack,
            event,
            code=cloudfront.FunctionCode.from_inline(code.lstrip()),
            runtime=cloudfront.FunctionRuntime.JS_2_0,
        ),
        event_type=types.VIEWER_REQUEST if event == "ViewerRequest" else types.VIEWER_RESPONSE,
    )


if __name__ == "__main__":
    build(cdk.App()).synth()
