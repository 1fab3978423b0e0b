"""Names of exception types whose meaning is clear without their message."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


USER_ERRORS = _names("""
    ArithmeticError AssertionError AttributeError AxisError ConfigError
    FileExistsError FileNotFoundError FloatingPointError FrozenInstanceError ImportError
    IndentationError IndexError InvalidInput InvalidParameterError IsADirectoryError KeyError
    LookupError ModuleNotFoundError NameError NotADirectoryError NotFittedError
    NotImplementedError OverflowError PermissionError PicklingError RecursionError
    StopAsyncIteration StopIteration SyntaxError TabError TypeError UFuncTypeError
    UnboundLocalError UnicodeEncodeError ValidationError ValueError ZeroDivisionError
""")
DATA_ERRORS = _names("""
    BadGzipFile BadZipFile EmptyDataError JSONDecodeError ParseError ParserError
    TOMLDecodeError UnicodeDecodeError UnicodeError UnidentifiedImageError UnpicklingError
    YAMLError
""")
NETWORK_ERRORS = _names("""
    ChunkedEncodingError ClientConnectionError ClientConnectorError ConnectError ConnectTimeout
    ConnectionAbortedError ConnectionError ConnectionRefusedError ConnectionResetError
    DistBackendError DistNetworkError DistStoreError EndpointConnectionError HTTPError
    IncompleteRead MaxRetryError NameResolutionError NewConnectionError PoolTimeout
    ProtocolError ReadError ReadTimeout ReadTimeoutError RemoteDisconnected
    RemoteProtocolError RendezvousConnectionError RendezvousTimeoutError SSLEOFError SSLError
    ServerDisconnectedError Timeout TimeoutError URLError WriteTimeout gaierror herror
""")
MEMORY_ERRORS = _names("MemoryError OutOfMemoryError _ArrayMemoryError bad_alloc")
# Those that carry an error number at the start of their message.
OS_ERRORS = _names("""
    BlockingIOError BrokenPipeError ChildProcessError ConnectionAbortedError ConnectionError
    ConnectionRefusedError ConnectionResetError FileExistsError FileNotFoundError IOError
    InterruptedError IsADirectoryError NotADirectoryError OSError PermissionError
    ProcessLookupError TimeoutError error timeout
""")
# A chain's first link where an error came from another process: the same error as text.
REMOTE = _names("RemoteTraceback _RemoteTraceback")
# What a thread raises when another one gave it nothing.
OF_LOST_THREAD = _names("BrokenBarrierError Empty Full")
# Their message tells of another process's error, which is the one that counts.
WRAPPERS = _names("""
    ChildFailedError ProcessRaisedException ProcessExitedException RemoteTraceback
""")
