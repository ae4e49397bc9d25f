"""All of dray that ever runs on a cluster: standard library only, Python 3.6 and newer.

It is shipped as one zipapp (see ``dray.programs.shipping``) and started with ``python -I -S``, so
nothing on the cluster but a bare interpreter is needed. Annotations are quoted because Python 3.6
would evaluate them.
"""
