"""The addresses of the shop. The console is for staff."""

from django.contrib import admin
from django.urls import include, path
from orders import views

urlpatterns = [
    path("orders/", views.place),
    path("orders/async/", views.place_async),
    path("admin/jobs/", include("dayjob.django.urls")),
    path("admin/", admin.site.urls),
]
