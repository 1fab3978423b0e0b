"""What a power loss may leave of a volume: enumerated from the system calls of a recorded save.

The model is the strict one of ALICE (Pillai et al., All File Systems Are Not Created Equal, OSDI
2014): bytes are durable once their file was fsynced, a name once its directory was.
"""
