"""The CDK application: everything that `cdk deploy` puts on AWS."""
