"""Policies that plan or look ahead."""
