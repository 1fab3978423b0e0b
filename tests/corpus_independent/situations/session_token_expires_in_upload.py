"""After hours of training an upload fails because the session token has expired."""


class ClientError(Exception):
    __module__ = "botocore.exceptions"


class S3UploadFailedError(Exception):
    __module__ = "boto3.exceptions"


def put_object() -> None:
    raise ClientError(
        "An error occurred (ExpiredToken) when calling the PutObject operation: "
        "The provided token has expired."
    )


def upload(name: str) -> None:
    try:
        put_object()
    except ClientError as e:
        raise S3UploadFailedError(f"Failed to upload {name} to acme-ml/run7/{name}: {e}") from e


print("[11:58:41] step 41200 loss 1.4410, uploaded checkpoint-41200.pt", flush=True)
print("[12:01:07] step 41300 loss 1.4396", flush=True)
upload("checkpoint-41300.pt")
