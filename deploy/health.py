"""The health check of the image: asks /health where the server in this container answers over HTTP, or HTTPS.

Exit status 1 if it is not well.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request

SECONDS = 5

port = os.environ.get("FLIGHT_SHUFFLE_HTTP_LISTEN", "").rpartition(":")[2] or "9112"
scheme = "https" if os.environ.get("FLIGHT_SHUFFLE_TLS_CERT") else "http"
# It asks itself, by an address for which there is no certificate.
context = ssl._create_unverified_context()
try:
    with urllib.request.urlopen(f"{scheme}://127.0.0.1:{port}/health", timeout=SECONDS, context=context) as answer:
        answer.read()
except (urllib.error.URLError, OSError) as error:
    sys.exit(f"not well: {error}")
