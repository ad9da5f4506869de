"""Serving engines from asyncio: admission, delivery of events, hosts, failover."""
