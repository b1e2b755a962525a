"""Fair sharing between jobs and tenants."""
