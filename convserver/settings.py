"""Django settings, made from the checked environment (`configuration`)."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dj_database_url

from convserver import __version__, configuration
from convserver.configuration import AuthMode
from convserver.serving import log_format

CONFIGURATION = configuration.read(os.environ)
BASE_DIR = Path(__file__).resolve().parent
# Tells one run of the test suite from another that shares its PostgreSQL and Redis.
TEST_RUN = os.environ.get("CONVSERVER_TEST_RUN", "run")

SECRET_KEY = CONFIGURATION.secret_key
SECRET_KEY_FALLBACKS = list(CONFIGURATION.secret_key_fallbacks)
DEBUG = False
ALLOWED_HOSTS = list(CONFIGURATION.allowed_hosts)

INSTALLED_APPS = [
    # It brings `manage.py runserver` with sockets and nothing else, for those who work on the server.
    *(["daphne"] if "runserver" in sys.argv and find_spec("daphne") else []),
    "unfold",
    # It would import every page of the admin at each start; `convserver.urls` does so with the first page.
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "corsheaders",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
    "conversations",
    "sessions_app",
    "csp",
    "convserver",
    # The wake-up jobs of workers; its tables need PostgreSQL.
    *(["procrastinate.contrib.django"] if CONFIGURATION.is_clustered else []),
]

MIDDLEWARE = [
    "convserver.serving.request_log.RefusalsMiddleware",  # outermost: it logs what the others refuse
    "convserver.serving.compression.PageCompressionMiddleware",  # outside what reads or changes pages
    "corsheaders.middleware.CorsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "convserver.serving.static_files.StaticFilesMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "sessions_app.identity.authentication.LocalUserMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "convserver.serving.admin_policy.AdminPolicyMiddleware",
    "convserver.api.unavailable.DatabaseFailuresMiddleware",  # innermost: a refusal passes the others
]

ROOT_URLCONF = "convserver.web.frontend_urls" if CONFIGURATION.frontend_dir else "convserver.urls"
ASGI_APPLICATION = "convserver.asgi.application"
APPEND_SLASH = False  # API clients lose their bodies on a redirect

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],  # before those of applications, some of which are replaced here
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "convserver.web.theme.look",
            ],
        },
    },
]


# A PostgreSQL that takes a connection and says nothing is given up after this long.
CONNECT_TIMEOUT_S = 5
# A connection idle for this long is checked, and one whose sent data is unconfirmed as long is closed.
UNCONFIRMED_S = 30
LOCK_TIMEOUT_S = CONFIGURATION.lock_timeout_s
"""A statement waits at most this long for a lock of another session."""


def _bounds(options: str) -> dict[str, Any]:
    """Return the options that end a connection to PostgreSQL which hangs."""
    statement_ms = CONFIGURATION.statement_timeout_s * 1000
    return {
        "keepalives": 1,
        "keepalives_idle": UNCONFIRMED_S,
        "keepalives_interval": UNCONFIRMED_S // 3,
        "keepalives_count": 4,
        "tcp_user_timeout": UNCONFIRMED_S * 1000,
        # A plan that is kept was made while the table was small, and would read all of it when it is large.
        "options": f"{options} -c statement_timeout={statement_ms} -c lock_timeout={LOCK_TIMEOUT_S}s "
        f"-c idle_in_transaction_session_timeout={statement_ms} -c plan_cache_mode=force_custom_plan".strip(),
    }


# The page caches of all connections together: some fifty threads have one, of up to 8 MB each.
SQLITE_HEAP_BYTES = 64 * 1024 * 1024
# A commit copies a write-ahead log of this length into the file, unless a checkpoint has done so before.
SQLITE_CHECKPOINT_PAGES = 8_000


def _database() -> dict[str, Any]:
    database: dict[str, Any] = dict(dj_database_url.parse(CONFIGURATION.database_url))
    options = database.setdefault("OPTIONS", {})
    if database["ENGINE"] == "django.db.backends.sqlite3":
        database["ENGINE"] = "conversations.engines.sqlite3"
        # IMMEDIATE: a transaction that reads and then writes takes its turn at once, and is never
        # told "database is locked" halfway. FULL: a commit is on the disk when it returns.
        options |= {
            "transaction_mode": "IMMEDIATE",
            "timeout": LOCK_TIMEOUT_S,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-8000; "
            # What is deleted is overwritten, so that a purge leaves nothing in the file.
            "PRAGMA secure_delete=ON; "
            f"PRAGMA wal_autocheckpoint={SQLITE_CHECKPOINT_PAGES}; "
            f"PRAGMA soft_heap_limit={SQLITE_HEAP_BYTES};",
        }
        database["TEST"] = {"NAME": f"{database['NAME']}.test"}
        database["CONN_MAX_AGE"] = None  # threads stay; opening the file costs as much as a small request
    else:
        database["ENGINE"] = "conversations.engines.postgresql"
        options["pool"] = {"min_size": 1, "max_size": 40}
        options.setdefault("connect_timeout", CONNECT_TIMEOUT_S)
        options |= _bounds(options.get("options", ""))
        database["TEST"] = {"NAME": f"test_convserver_{TEST_RUN}"}
    return database


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Hints bring what was said: installations that share a Redis must not hear each other.
HINTS_PREFIX = f"convserver-{CONFIGURATION.installation}-{TEST_RUN}"


def _hint_channel() -> dict[str, Any]:
    options: dict[str, Any] = {"prefix": HINTS_PREFIX, "keys": CONFIGURATION.hint_keys}
    if CONFIGURATION.redis_url:
        options["url"] = CONFIGURATION.redis_url
        return {"BACKEND": "conversations.hint_channels.over_redis.RedisHints", "CONFIG": options}
    if CONFIGURATION.is_clustered:
        return {"BACKEND": "conversations.hint_channels.over_postgresql.PostgresqlHints", "CONFIG": options}
    return {"BACKEND": "channels.layers.InMemoryChannelLayer", "CONFIG": {"capacity": 10_000}}


CHANNEL_LAYERS = {"default": _hint_channel()}


def _cache(name: str, *, entries: int) -> dict[str, Any]:
    """Return a cache of each process; what processes count together is in `storage.shared_counts`."""
    return {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "LOCATION": name,
        "OPTIONS": {"MAX_ENTRIES": entries},
    }


CACHES = {
    "default": _cache("default", entries=300),
    # A full cache drops what it likes: a client that could fill this one would begin to guess anew.
    "guesses": _cache("guesses", entries=100_000),
}

PASSWORD_HASHERS = [
    "convserver.passwords.hashers.BoundedArgon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "sessions_app.key_sessions.ServerKeyBackend",
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True
DATETIME_FORMAT = "Y-m-d H:i:s"
DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s"

STATIC_URL = "/static/"
STATIC_ROOT = None
WHITENOISE_USE_FINDERS = True  # files are served from the packages: no `collectstatic` before a start
WHITENOISE_AUTOREFRESH = False

MESSAGE_MAX_BYTES = configuration.MESSAGE_MAX_BYTES
DATA_UPLOAD_MAX_MEMORY_SIZE = MESSAGE_MAX_BYTES

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "media-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    }
}
X_FRAME_OPTIONS = "DENY"

UNFOLD = {
    "SITE_TITLE": "convserver",
    "SITE_HEADER": "convserver",
    "SITE_SYMBOL": "forum",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "/static/web/icon.svg"}],
    "SHOW_VIEW_ON_SITE": False,
    "STYLES": ["/static/admin_pages/style.css"],
    "SCRIPTS": ["/static/admin_pages/htmx.js"],
    "DASHBOARD_CALLBACK": "convserver.admin.site.first_page",
    "SIDEBAR": {"navigation": "convserver.admin.site.navigation"},
    "COLORS": {
        "primary": {
            "50": "oklch(97.9% .021 166.1)",
            "100": "oklch(95% .052 163.1)",
            "200": "oklch(90.5% .093 164.2)",
            "300": "oklch(84.5% .143 165)",
            "400": "oklch(76.5% .14 163.2)",
            "500": "oklch(66% .13 163)",
            "600": "oklch(48.5% .102 162.5)",
            "700": "oklch(43.2% .092 163)",
            "800": "oklch(38.2% .08 163.5)",
            "900": "oklch(33.8% .07 164)",
            "950": "oklch(24.2% .049 166)",
        }
    },
}

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"

CORS_ALLOWED_ORIGINS = list(CONFIGURATION.permitted_origins)
CORS_ALLOW_CREDENTIALS = True
CORS_ALLOW_HEADERS = [
    "accept",
    "authorization",
    "content-type",
    "idempotency-key",
    "if-match",
    "x-csrftoken",
    "x-session-api-key",
]
CORS_EXPOSE_HEADERS = ["etag"]
CSRF_TRUSTED_ORIGINS = list(CONFIGURATION.permitted_origins)

if CONFIGURATION.auth is AuthMode.ACCOUNTS:
    # Passwords and tokens travel here, so the way to this server is expected to be HTTPS, ended by
    # a proxy in front of it; loopback stays usable for a first look.
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SECURE_HSTS_SECONDS = 31_536_000
    SILENCED_SYSTEM_CHECKS = [
        "security.W005",  # the server speaks for its own name, not for every name below it
        "security.W008",  # API clients lose their bodies on a redirect: the proxy refuses or redirects
        "security.W021",  # the same holds for preload lists
    ]

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "convserver.api.authentication.KeyAuthentication",
        "convserver.api.authentication.LoginAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "convserver.api.scopes.ScopePermission",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["convserver.api.throttling.UserThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["convserver.api.bodies.JsonParser"],
    "EXCEPTION_HANDLER": "convserver.api.errors.native_response",
    "DEFAULT_SCHEMA_CLASS": "convserver.api.schema.DoorSchema",
}

SPECTACULAR_SETTINGS = {
    "TITLE": "convserver",
    "DESCRIPTION": (
        "A durable conversation server for AI agents, by REST. Conversations are append-only logs of events; "
        "what was acknowledged is committed. Sockets are not described here: docs/protocol.md has them.\n\n"
        "In local mode without `SESSION_API_KEY` no credentials are needed."
    ),
    "VERSION": __version__,
    "TAGS": [
        {"name": "native", "description": "The native sockets' functions over REST, and more"},
        {"name": "v0", "description": "The OpenHands V0 protocol"},
        {
            "name": "v1-agent",
            "description": (
                "The OpenHands V1 agent server. Without `/agent` in front each operation is served as well, "
                "except those whose addresses V0 has: there the key of a conversation, `ids` in the query or "
                "`agent` or `workspace` in the body say that V1 is meant. `/api/acp/conversations` is the "
                "same as `/api/conversations`."
            ),
        },
        {"name": "probes", "description": "Health checks for monitoring"},
        {"name": "v1-app", "description": "The OpenHands V1 app server"},
    ],
    "OAS_VERSION": "3.1.0",  # what pydantic writes is of 3.1
    "SCHEMA_PATH_PREFIX": "/api",
    "COMPONENT_SPLIT_PATCH": False,  # a PATCH says in its serializer what may be left out
    "ENFORCE_NON_BLANK_FIELDS": True,
    "POSTPROCESSING_HOOKS": [],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
}

# The seams below the doors, chosen by dotted path.
CONVERSATION_STORE = CONFIGURATION.store
CONVERSATION_VALIDATOR = CONFIGURATION.validator
CONVERSATION_MANAGER = CONFIGURATION.manager
CONVERSATION_SECRETS = "sessions_app.settings.owner_secrets.OwnerSecrets"
CONVERSATION_DOMAIN_EVENTS = "sessions_app.webhooks.deliveries.record"
CONVERSATION_HOOKS = CONFIGURATION.hooks

LOGGING_CONFIG = "convserver.serving.log_format.configure"
LOGGING = log_format.settings(CONFIGURATION.log_format, CONFIGURATION.log_level)
