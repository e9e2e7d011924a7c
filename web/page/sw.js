// Serves the page's own files from a cache, so that it opens offline after the first visit. Models
// are not its business: they are in the origin private file system.
// The build replaces the three values.
const VERSION = "unbuilt";
/** Stored at the first visit. */
const FILES = [];
/** Stored when they are first used. */
const LATER = [];

const CACHE = `warploom-${VERSION}`;

self.addEventListener("install", (event) => {
  event.waitUntil((async () => {
    const cache = await caches.open(CACHE);
    await cache.addAll(FILES.map((file) => new Request(file, { cache: "no-cache" })));
    await self.skipWaiting();
  })());
});

self.addEventListener("activate", (event) => {
  event.waitUntil((async () => {
    for (const name of await caches.keys()) {
      if (name.startsWith("warploom-") && name !== CACHE) await caches.delete(name);
    }
    await self.clients.claim();
  })());
});

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  const scope = new URL("./", self.location.href);
  if (event.request.method !== "GET" || url.origin !== scope.origin
    || !url.pathname.startsWith(scope.pathname)) {
    return;
  }
  const file = url.pathname.slice(scope.pathname.length) || "index.html";
  const later = LATER.includes(file);
  if (later || FILES.includes(file)) {
    event.respondWith((async () => {
      const cache = await caches.open(CACHE);
      const key = new URL(file, scope).href;
      const stored = await cache.match(key);
      if (stored) return stored;
      const answer = await fetch(event.request);
      if (later && answer.ok) await cache.put(key, answer.clone());
      return answer;
    })());
  }
});
