"""The provider for AWS: EC2 instances, EBS volumes, VPC routes, Elastic Load Balancing."""
